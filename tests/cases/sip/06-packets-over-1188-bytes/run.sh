#!/usr/bin/env bash
. "$CASES/sip/lib.sh"
need openssl
gateways
openssl req -x509 -newkey rsa:4096 -nodes -days 10 -subj /CN=q -keyout dtls.key -out dtls.pem 2>/dev/null
judge
