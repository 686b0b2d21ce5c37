"""`python -m dynctx` is the command `dynctx`, also where no script was installed (torchrun, source trees)."""

from dynctx.cli import main

if __name__ == "__main__":
    main()
