#!/usr/bin/env bash
# A gateway's SIP certificate is replaced by one that ended yesterday.
. "$CASES/sip/lib.sh"
need openssl curl
hosts
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=good \
    -addext subjectAltName=IP:192.0.2.13 -keyout sip.key -out sip.pem 2>/dev/null
gateway_x <<'END'
listen = ["tls:192.0.2.13:5061"]
allow = ["192.0.2.0/24"]
certificate = "sip.pem"
certificate_key = "sip.key"
END

# shown: the common name of the certificate that phones see.
shown() { ip netns exec p openssl s_client -connect 192.0.2.13:5061 </dev/null 2>/dev/null | sed -n 's/^subject=.*CN *= *//p'; }
# warns COMMAND...: it fails, or says something about the certificate's time.
warns() { ! "$@" >said 2>&1 || grep -qiE 'expired|not valid|has ended' said; }

control "phones see the first certificate" [ "$(shown)" = good ]
echo subjectAltName=IP:192.0.2.13 >extensions
openssl req -new -key sip.key -subj /CN=ended -out request.pem 2>/dev/null
openssl x509 -req -in request.pem -signkey sip.key -days -1 -extfile extensions -out sip.pem 2>/dev/null
control "the second certificate has ended" eval '! openssl x509 -checkend 0 -noout -in sip.pem >/dev/null'
right "check warns of it" warns "$TRUNKLINE" check x.toml
right "reload warns of it" warns "$TRUNKLINE" reload --control x.ctl
echo "phones see: $(shown)"
ip netns exec x curl -s http://127.0.0.1:9101/metrics >metrics
right "a metric has its end" grep -q 'sip.*not_after' metrics
