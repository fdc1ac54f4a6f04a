"""Each network is named the gateway's address in it."""

from phones import P, X, Phone, sdp
from verdict import finish, right

GATEWAY, Z = "198.51.100.1", "198.51.100.9"
p, z = Phone(P, "p", X, namespace="p"), Phone(Z, "z", GATEWAY, namespace="z")

p.invite(f"z@{Z}", sdp(P, 4000))
invite = z.expect("INVITE")
via, route, media = invite.all("via")[0], invite.get("record-route"), invite.media()
right(f"towards z, Via names {GATEWAY}: {via}", GATEWAY in via)
right(f"towards z, Record-Route names it: {route}", GATEWAY in route)
right(f"towards z, media are at it: {media}", media[0] == GATEWAY)
try:
    z.reply(invite, 486)
except OSError as error:
    print(f"z cannot answer: {error}")
right("p hears z's answer", p.receive(486))

z.invite(f"p@{P}", sdp(Z, 4000))
p.reply(p.expect("INVITE"), 200, sdp(P, 4000))
answered = z.receive(200)
media = answered.media() if answered else ("", 0)
right(f"the answer tells z to send media to {GATEWAY}: {media}", media[0] == GATEWAY)
finish()
