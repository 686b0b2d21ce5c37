"""The HTTP service: translations for many users at once, and a page that shows which context each line was given."""
