//! Calls that end by an operator's command, or together with their gateway.

use super::{Operator, refused};
use crate::operate::count;
use crate::operate::protocol::{HungUp, Refused};
use crate::sip;
use trunkline_gateway::{CallSelection, Farewell};

/// The calls that a request names: it must name one or say that all are meant, since a call that was
/// forgotten would otherwise end all.
fn selection(call: Option<String>, all: bool) -> Result<CallSelection, Refused> {
    match (call, all) {
        (Some(call), false) => Ok(CallSelection::Named(call)),
        (None, true) => Ok(CallSelection::All),
        (None, false) => Err(refused(
            "hang-up names no call, and none was ended: add \"call\" with a Call-ID, or \"all\": true",
        )),
        (Some(_), true) => Err(refused(
            "hang-up has both \"call\" and \"all\", and no call was ended: give one of them",
        )),
    }
}

impl Operator {
    pub(super) fn hang_up(&self, call: Option<String>, all: bool) -> Result<HungUp, Refused> {
        let which = selection(call, all)?;
        let silent = || refused("the gateway does not answer: look at the node's log");
        let calls = self.gateway()?.hang_up(which.clone()).ok_or_else(silent)?;
        match which {
            CallSelection::Named(call) if calls == 0 => Err(refused(format!(
                "there is no call {call}: `trunkline calls --json` lists them"
            ))),
            _ => Ok(HungUp { calls }),
        }
    }

    /// Ends the gateway's calls, if it has any.
    pub fn end_calls(&self) {
        match self.sip.as_ref().map(sip::GatewayHandle::stop) {
            Some(Some(stopped)) if stopped.up + stopped.ringing > 0 => {
                tracing::warn!("{}", in_words(&stopped));
            }
            Some(None) => tracing::warn!("the gateway did not answer: records may be missing"),
            None | Some(Some(_)) => {}
        }
    }
}

/// Message about the calls that ended with their gateway.
fn in_words(stopped: &sip::Stopped) -> String {
    let all = stopped.up + stopped.ringing;
    let what = match (stopped.up, stopped.ringing) {
        (up, 0) => format!("{} up", count(up as u64, "call")),
        (0, ringing) => format!("{} ringing", count(ringing as u64, "call")),
        (up, ringing) => format!("{} up and {ringing} ringing", count(up as u64, "call")),
    };
    let then = match &stopped.farewell {
        None => "no end has been told, since [sip] bye_at_stop is false".to_owned(),
        Some(farewell) => told(farewell),
    };
    let more = match all - stopped.named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named = stopped.named.join(", ");
    format!(
        "stopped with {what}, which have ended: {then}. `trunkline drain --stop` waits for the last \
         call. They were {named}{more}"
    )
}

/// How many ends of calls know that these have ended.
fn told(&Farewell { ends, told, unanswered }: &Farewell) -> String {
    let who = match told {
        0 => return "none of their ends could be told".to_owned(),
        _ if told >= ends => "all ends have been told".to_owned(),
        _ => format!("{told} of {} have been told", count(ends as u64, "end")),
    };
    let then = match unanswered {
        0 => "have answered".to_owned(),
        _ => format!("{unanswered} of these have not answered in time"),
    };
    let left = match ends.saturating_sub(told) {
        0 => "",
        _ => "; the others have given no way to reach them, or have not rung",
    };
    format!("{who} (BYE, or CANCEL and 503), and {then}{left}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::protocol::Request;

    #[test]
    fn a_stop_tells_of_its_calls_and_whether_their_ends_know() {
        let named = vec!["sip:a@h to sip:b@h (1)".to_owned()];
        let farewell = |ends, told, unanswered| Some(Farewell { ends, told, unanswered });
        let stopped = sip::Stopped { up: 1, ringing: 2, named, farewell: farewell(6, 5, 1) };
        let said = in_words(&stopped);
        assert!(
            said.contains("1 call up and 2 ringing") && said.contains("5 of 6 ends have been told"),
            "{said}"
        );
        assert!(said.contains("and 1 of these have not answered in time; the others"), "{said}");
        assert!(said.ends_with("They were sip:a@h to sip:b@h (1), and 2 more"), "{said}");
        let all = sip::Stopped { farewell: farewell(6, 6, 0), ..stopped.clone() };
        assert!(
            in_words(&all).contains("all ends have been told (BYE, or CANCEL and 503), and have")
        );
        let none = sip::Stopped { farewell: farewell(6, 0, 0), ..stopped.clone() };
        assert!(in_words(&none).contains("none of their ends could be told"));
        let silent = sip::Stopped { farewell: None, ringing: 0, ..stopped };
        assert!(in_words(&silent).contains("stopped with 1 call up, which"), "{silent:?}");
        assert!(in_words(&silent).contains("bye_at_stop is false"));
    }

    #[test]
    fn a_request_that_forgets_the_call_ends_none() {
        let asked = |text: &str| match serde_json::from_str::<Request>(text) {
            Ok(Request::HangUp { call, all }) => selection(call, all).map_err(|e| e.message),
            other => Err(format!("{other:?}")),
        };
        let named = CallSelection::Named("1@h".into());
        assert_eq!(asked(r#"{"do":"hang-up","call":"1@h"}"#), Ok(named.clone()));
        assert_eq!(asked(r#"{"do":"hang-up","call":"1@h","all":false}"#), Ok(named));
        assert_eq!(asked(r#"{"do":"hang-up","all":true}"#), Ok(CallSelection::All));
        for (text, why) in [
            (r#"{"do":"hang-up"}"#, "names no call"),
            (r#"{"do":"hang-up","call":null}"#, "names no call"),
            (r#"{"do":"hang-up","all":false}"#, "names no call"),
            (r#"{"do":"hang-up","call":"1@h","all":true}"#, "both"),
            (r#"{"do":"hang-up","cal":"1@h"}"#, "unknown field"),
        ] {
            let said = asked(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
