#!/usr/bin/env bash
. "$CASES/security/lib.sh"
overlay
judge
