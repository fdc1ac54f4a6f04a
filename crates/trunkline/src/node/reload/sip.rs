//! Changes of a gateway's settings.

use super::Diff;
use crate::node::config::{Config, Sip};
use trunkline_gateway as gateway;

impl Diff {
    /// Settings of new calls and connections can change; sockets and ports can't.
    pub(super) fn sip(&mut self, old: &Config, new: &Config) {
        let (Some(was), Some(is)) = (&old.sip, &new.sip) else { return };
        // Destructured, so that the compiler flags each new key.
        let Sip { gateway, bind, media, deadline_ms, records, tls } = is;
        let gateway::Config {
            node: _,
            sockets,
            names,
            media: address,
            own: _,
            ports,
            allow,
            trust,
            nodes,
            routes,
            networks,
            elsewhere,
            idle,
            bye_at_stop,
            max_calls,
            max_transactions: _,
        } = gateway;
        let old = &was.gateway;
        for (differs, key) in [
            (old.names != *names, "[sip] names"),
            (old.allow != *allow, "[sip] allow"),
            (old.trust != *trust || old.nodes != *nodes, "[sip] trust"),
            (old.routes != *routes, "[[sip.route]]"),
            (old.elsewhere != *elsewhere, "[sip] learn"),
            (old.networks != *networks, "[[sip.network]]"),
            (old.idle != *idle, "[sip] idle"),
            (old.bye_at_stop != *bye_at_stop, "[sip] bye_at_stop"),
        ] {
            if differs {
                self.applied.push(key.into());
            }
        }
        if let Some(running) = &mut self.running.sip {
            running.gateway.names.clone_from(names);
            running.gateway.allow.clone_from(allow);
            running.gateway.trust.clone_from(trust);
            running.gateway.nodes.clone_from(nodes);
            running.gateway.routes.clone_from(routes);
            running.gateway.networks.clone_from(networks);
            running.gateway.elsewhere.clone_from(elsewhere);
            (running.gateway.idle, running.gateway.bye_at_stop) = (*idle, *bye_at_stop);
            running.tls.clone_from(tls);
        }
        let is_bound = was.bind == *bind && old.sockets == *sockets;
        for (differs, key) in [
            (!is_bound, "[sip] listen"),
            (is_bound && (old.media != *address || was.media != *media), "[sip] address"),
            (old.ports != *ports, "[sip] ports"),
            (old.max_calls != *max_calls, "[sip] max_calls"),
            (was.deadline_ms != *deadline_ms, "[sip] deadline"),
            (was.records != *records, "[sip] records"),
        ] {
            if differs {
                self.restart.push(key.into());
            }
        }
    }
}
