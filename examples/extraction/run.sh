#!/bin/sh
# A folder of texts, extracted, extracted again, edited, extracted again: what was reused and saved.
#
#     sh examples/extraction/run.sh
#
# The binary is $HAPAX, or hapax on the PATH. Everything happens in a temporary directory, which is
# removed at the end. Needs no network.
set -eu

hapax=${HAPAX:-hapax}
case $hapax in /*) ;; */*) hapax=$PWD/$hapax ;; esac
command -v "$hapax" > /dev/null || { echo "run.sh: $hapax is not there; set HAPAX to the binary" >&2; exit 127; }
here=$(cd "$(dirname "$0")" && pwd)
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
trap 'exit 1' HUP INT TERM
cp -R "$here/texts" "$here/computing.ttl" "$there"
cd "$there"

HAPAX_DB=$there/hapax.db
export HAPAX_DB
unset HAPAX_CONFIG HAPAX_NAMESPACE HAPAX_SIGNING_KEY
iri=https://example.org/computing

say() { printf '\n== %s\n' "$*"; }

# Extracts the folder; what is printed is kept for the reckoning at the end.
extract() {
    "$hapax" extract texts/*.txt --ontology "$iri" --param chunkSize=500 > table
    cat table
    sed 1d table >> tables
}

say "An ontology, kept once"
"$hapax" ontologies put computing.ttl

say "The folder, for the first time"
extract

say "What was found in one of them"
"$hapax" --json extract texts/engines.txt --ontology "$iri" --param chunkSize=500 |
    grep -o '"subject":"[^"]*","predicate":"[^"]*","object":"[^"]*"' |
    sed "s|$iri#||g; s|\"||g; s|subject:||; s|,predicate:| |; s|,object:| |"

say "The folder again: everything is known"
extract

say "One word of one paragraph changes: who worked with Eckert is now named"
sed 's/He worked with Eckert/Von Neumann worked with Eckert/' texts/eniac.txt > edited
mv edited texts/eniac.txt
"$hapax" cache explain texts/eniac.txt --ontology "$iri" --param chunkSize=500 | grep found
extract

say "The ontology learns that Tommy Flowers is also called Flowers"
sed '/^:flowers/s/@en \.$/@en ; skos:altLabel "Flowers"@en ./' computing.ttl > edited
mv edited computing.ttl
"$hapax" ontologies put computing.ttl
"$hapax" cache stats
extract

say "What was saved"
awk '
    $3 == "known" { saved += $6; hits++ }
    $3 == "read"  { saved += $7; read += $6 - $7 }
    END {
        printf "%d texts were asked for; %d were known as a whole.\n", NR, hits
        printf "They have %d chunks; %d were read, %d were not read again.\n", read + saved, read, saved
    }' tables
