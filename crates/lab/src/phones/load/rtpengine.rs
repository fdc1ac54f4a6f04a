//! The peer: Kamailio with rtpengine, which relays the media.

use super::super::proxy::{end, start};
use super::super::{Error, Kamailio, Network, Place};
use std::path::Path;
use std::process::Child;

/// Both programs at the first site's gateway; stopped when dropped, the proxy first.
pub struct Rtpengine {
    proxy: Kamailio,
    relay: Relay,
}

struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Routes requests by their URI, and has all media relayed.
const KAMAILIO: &str = r#"
debug=1
log_stderror=yes
children=2
mhomed=1
auto_aliases=no
listen=udp:10.77.1.1:5060
listen=udp:10.77.8.2:5060
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "maxfwd.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "rtpengine.so"
modparam("rtpengine", "rtpengine_sock", "udp:127.0.0.1:2223")
request_route {
  if (!mf_process_maxfwd_header("10")) { sl_send_reply("483", "Too Many Hops"); exit; }
  if (has_totag()) {
    if (is_method("BYE")) rtpengine_manage();
    loose_route();
    t_relay();
    exit;
  }
  loose_route();
  record_route();
  if (has_body("application/sdp")) rtpengine_manage("replace-origin replace-session-connection");
  t_on_reply("ANSWER");
  t_relay();
}
onreply_route[ANSWER] {
  if (has_body("application/sdp")) rtpengine_manage("replace-origin replace-session-connection");
}
"#;

impl Rtpengine {
    /// Starts both, with their files in `folder`; rtpengine relays in user space.
    pub fn start(network: &Network, folder: &Path) -> Result<Rtpengine, Error> {
        let mut command = network.command(Place::GatewayA, "rtpengine");
        command.args(["--config-file=none", "--foreground", "--log-stderr", "--log-level=6"]);
        command.args(["--table=-1", "--interface=10.77.1.1", "--listen-ng=127.0.0.1:2223"]);
        command.args(["--port-min=30000", "--port-max=39999", "--num-threads=2"]);
        let relay = start(&mut command, &folder.join("rtpengine.log"), "Startup complete")?;
        let relay = Relay(relay);
        let proxy = Kamailio::of(network, Place::GatewayA, folder, KAMAILIO)?;
        Ok(Rtpengine { proxy, relay })
    }

    /// The processes, by their role.
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        vec![("rtpengine", self.relay.0.id()), ("Kamailio", self.proxy.process())]
    }
}
