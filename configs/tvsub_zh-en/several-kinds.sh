# bash configs/tvsub_zh-en/several-kinds.sh [CORPORA], before dynctx prepare configs/tvsub_zh-en/several-kinds.yaml
# Text of three kinds in data/several: plain dialogue, two conversations in one stream, and dialogue that quotes talks.
set -e
C=${1:-../shared/corpora}
V=$C/tvsub_zh-en T=$C/ted_zh-en D=data/several
mkdir -p $D

episodes() {  # SPLIT FIRST LAST NAME: some episodes, as they are
    for side in zh en; do
        xz -dc $V/$1.$side.xz | awk -v RS= -v ORS='\n\n' "NR >= $2 && NR <= $3" > $D/$4.$side
    done
}
lay() {  # NAME OUTPUT ...: lay them into each other, or lines of talks into them
    python examples/two_conversations.py $D/$1.zh $D/$1.en -o $D/$2 "${@:3}"
}
talks() { echo --share 0.25 --quoting $T/$1.zh.xz $T/$1.en.xz; }
together() {  # SPLIT
    cat $D/plain.$1.zh $D/two.$1.source <(echo) $D/talks.$1.source > $D/$1.source
    cat $D/plain.$1.en $D/two.$1.target <(echo) $D/talks.$1.target > $D/$1.target
}

episodes train 201 226 plain.train
episodes train 227 238 pairs.train
episodes train 240 249 quoting.train
lay pairs.train two.train
lay quoting.train talks.train $(talks train)

episodes dev 1 3 plain.dev
episodes dev 4 7 pairs.dev
episodes dev 1 2 quoting.dev
lay pairs.dev two.dev
lay quoting.dev talks.dev $(talks dev)
together dev

episodes test 1 12 plain.test
lay plain.test two.test
lay plain.test talks.test $(talks tst2010-2013)
together test

# which of the three each line of the test set is of, in documents as it is: 0 plain, 1 two conversations, 2 dialogue and 3 talk
{ sed 's/..*/0/' $D/plain.test.zh; sed 's/..*/1/' $D/two.test.source; echo; sed 's/0/2/; s/1/3/' $D/talks.test.whose; } > $D/test.whose
# and the lines of its own conversation, which in plain dialogue are all
{
    awk 'NF { n++; s = ""; for (d = 1; d < n && d <= 6; d++) s = s (d > 1 ? ", " : "") d; print "{\"selected\": [" s "]}" } !NF { n = 0 }' $D/plain.test.zh
    cat $D/two.test.own.jsonl $D/talks.test.own.jsonl
} > $D/test.own.jsonl
