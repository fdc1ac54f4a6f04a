#!/usr/bin/env bash
. "$CASES/security/lib.sh"
ulimit -n 9000 2>/dev/null || unfit "4,096 connections need an open-file limit of 9,000"
gateways
judge
