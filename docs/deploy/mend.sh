#!/bin/sh
# Check the store of a broker that is down, keep a copy, recover it, and say whether the broker may start.
# STORE and COPY are directories; BROKER is the version that is to start (empty: the newest by the files).
# Exit code 0: start the broker. 1: it would lose messages; look before it starts. Others: those of the verb that failed.
set -eu
: "${STORE:?directory of the store}" "${COPY:?new directory for the copy}"
# a healthy store is left alone
if rmqctl doctor "$STORE" ${BROKER:+--broker "$BROKER"}; then
	exit 0
fi
rmqctl snapshot "$COPY" -s "$STORE"
rmqctl snapshot --verify "$COPY"
# where a decision is needed, this ends with 5 and has changed nothing
code=0
rmqctl recover -s "$STORE" --yes || code=$?
# 1: usable, with damage that no broker reads; predict says whether the start is safe
[ "$code" -le 1 ] || exit "$code"
rmqctl predict -s "$STORE" ${BROKER:+--broker "$BROKER"}
