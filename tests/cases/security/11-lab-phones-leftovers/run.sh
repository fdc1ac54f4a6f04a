#!/usr/bin/env bash
# What `trunkline-lab phones` leaves behind when a signal ends it.
. "$CASES/lib/case.sh"
need baresip

# The pid namespace is the case's own: all processes are seen, and end with it.
export TMPDIR=$WORK/tmp
mkdir "$TMPDIR"

runs() { pgrep "$@" >/dev/null; }

for signal in INT TERM HUP; do
    # A job in the background ignores SIGINT otherwise.
    env --default-signal=INT "$LAB" phones --seconds 8 --speech "$REPOSITORY/speech" >phones.out 2>&1 & lab=$!
    for _ in $(seq 100); do
        runs baresip && break
        sleep 0.2
    done
    control "SIG$signal: telephones run" runs baresip
    sleep 2
    kill -$signal $lab
    sleep 2
    head -2 phones.out
    right "SIG$signal: no telephone is left" eval '! runs baresip'
    right "SIG$signal: no node is left" eval '! runs -f "trunkline node"'
    left=$(ip netns list | tr '\n' ' ')
    right "SIG$signal: no namespace is left: ${left:-none}" [ -z "$left" ]
    left=$(ls "$TMPDIR")
    right "SIG$signal: no temporary file is left: ${left:-none}" [ -z "$left" ]
    pkill -KILL baresip
    pkill -KILL -f 'trunkline node'
    kill -KILL $lab 2>/dev/null
    wait $lab 2>/dev/null
    for name in $(ip netns list | cut -d ' ' -f 1); do ip netns del "$name"; done
    rm -rf "${TMPDIR:?}"/*
done
