#!/bin/sh
# Invoices come by mail, are booked, paid and answered; the post office is killed in the middle of a
# mail, the script is mended on the way, and a person decides about what cannot be known.
#
#     sh examples/invoices/run.sh
#
# The binary is $HAPAX, or hapax on the PATH. Needs Python 3 with aiosmtpd (Debian: python3-aiosmtpd)
# for the servers around it, which run on free ports of 127.0.0.1. Everything happens in a temporary
# directory, which is removed at the end.
set -eu

hapax=${HAPAX:-hapax}
case $hapax in /*) ;; */*) hapax=$PWD/$hapax ;; esac
command -v "$hapax" > /dev/null || { echo "run.sh: $hapax is not there; set HAPAX to the binary" >&2; exit 127; }
for python in python3 /usr/bin/python3 none; do
    "$python" -c 'import aiosmtpd' 2> /dev/null && break
done
[ "$python" != none ] || { echo "run.sh: Python with aiosmtpd is needed: apt-get install python3-aiosmtpd" >&2; exit 127; }
here=$(cd "$(dirname "$0")" && pwd)
there=$(mktemp -d)
servers=
trap 'for server in $servers; do kill "$server" 2> /dev/null || :; done; wait; rm -rf "$there"' EXIT
trap 'exit 1' HUP INT TERM
cp "$here"/*.py "$here/invoices.js" "$there"
cd "$there"

HAPAX_DB=$there/hapax.db
export HAPAX_DB
unset HAPAX_CONFIG HAPAX_NAMESPACE HAPAX_SIGNING_KEY

say() { printf '\n== %s\n' "$*"; }

# Waits until a command succeeds, for at most half a minute.
until_it() {
    for _ in $(seq 300); do
        if "$@" 2> /dev/null; then return; fi
        sleep 0.1
    done
    echo "run.sh: waited in vain for: $*" >&2
    exit 1
}

# Starts a server on a port, 0 for any; its process is in $started, its port in $port.
start() {
    rm -f "$1.port"
    "$python" office.py "$1" "$2" &
    started=$!
    servers="$servers $started"
    until_it test -e "$1.port"
    port=$(cat "$1.port")
}

# One member of the one thing a person has to decide.
of_escalation() { { "$hapax" --json items escalations || :; } | "$python" -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }

start post 0
post_office=$started
post=$port
start office 0
sed "s/POST/$post/; s/OFFICE/$port/; s|PYTHON|$python|" "$here/hapax.toml" > hapax.toml

say "Five invoices come by mail"
"$python" office.py arrive "$post"

say "They are dealt with, until the post office is killed with a mail in its hands"
echo billing@cedar.example > hold
"$hapax" items run invoices.js &
run=$!
until_it test -e held
kill -9 "$post_office"
wait "$run" && code=0 || code=$?
echo "hapax: exit code $code"

say "What happened so far: two are through, the script was mended for the second"
"$hapax" items list invoices
"$hapax" items versions invoices

say "It cannot be known whether the third mail was sent, so a person decides"
"$hapax" items escalations || :

say "That person looks into the post office: the mail is there, so it is not sent again"
key=$(of_escalation key)
attempt=$(of_escalation judged)
mail=$(grep -rl '^To: billing@cedar.example' mail)
grep -i -E '^(To|Subject|Message-ID):' "$mail"
sent=$(grep -i '^Message-ID:' "$mail" | cut -d ' ' -f 2)
"$hapax" items act "$key" happened --attempt "$attempt" --result "{\"messageId\": \"$sent\"}" \
    --by ada --note "it is in the post office"

say "The post office is back, and the rest is dealt with"
start post "$post"
"$hapax" items run --workflow invoices

say "Once more: nothing is left to do"
"$hapax" items run --workflow invoices
"$hapax" items list invoices

say "What the world has of it"
"$python" office.py reckon
