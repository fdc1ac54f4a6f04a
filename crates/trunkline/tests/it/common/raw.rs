//! A connection without the client library, to send messages that the library never would.

use crate::common::keys::{CLIENT, identity};
use crate::common::{Node, PATIENCE, ms};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use trunkline_base::wire::Writer;
use trunkline_overlay::session::remote::{Datagram, FromClient, Keys, Opening, TAG, Token, prefix};
use trunkline_overlay::session::wire::{RefusalReason, SESSION_VERSION, ToClient, ToNode};

pub struct Raw {
    pub tcp: TcpStream,
    udp: UdpSocket,
    pub token: Token,
    pub keys: Option<Keys>,
}

impl Raw {
    /// Opens a connection without sending anything.
    pub fn dial(at: SocketAddr) -> Raw {
        let tcp = TcpStream::connect(at).expect("connected");
        tcp.set_read_timeout(Some(PATIENCE)).expect("an option");
        let udp = UdpSocket::bind((at.ip(), 0)).expect("a port");
        udp.connect(at).expect("connected");
        udp.set_read_timeout(Some(ms(200))).expect("an option");
        Raw { tcp, udp, token: Token(0), keys: None }
    }

    /// Opens a connection and completes the handshake.
    pub fn connect(node: &Node) -> Raw {
        let mut raw = Raw::dial(node.remote);
        let (opening, first) = begin(node, CLIENT);
        raw.say(&first);
        let response = raw.read().expect("a response");
        let (token, keys) = opening.finish(&response).expect("by the node");
        (raw.token, raw.keys) = (token, Some(keys));
        raw
    }

    pub fn bound(node: &Node) -> Raw {
        let mut raw = Raw::connect(node);
        raw.say(&bytes(|w| ToNode::Bind { version: SESSION_VERSION, port: 0 }.emit_head(w)));
        let answer = raw.read().expect("an answer");
        assert!(matches!(ToClient::parse(&answer), Ok(ToClient::Bound { .. })), "{answer:?}");
        raw
    }

    /// Encodes `message` for TCP.
    pub fn frame(&mut self, message: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        match &mut self.keys {
            None => frame = [&prefix(message.len())[..], message].concat(),
            Some(keys) => assert!(keys.seal_frame([message, &[]], &mut frame)),
        }
        frame
    }

    pub fn say(&mut self, message: &[u8]) {
        let frame = self.frame(message);
        let _ = self.tcp.write_all(&frame);
    }

    pub fn read(&mut self) -> Option<Vec<u8>> {
        let mut len = [0; 2];
        self.tcp.read_exact(&mut len).ok()?;
        let mut message = vec![0; u16::from_be_bytes(len).into()];
        self.tcp.read_exact(&mut message).ok()?;
        if let Some(keys) = &mut self.keys {
            let n = keys.open_frame(len, &mut message).expect("sealed by the node");
            message.truncate(n);
        }
        Some(message)
    }

    /// Reads the reason for which the node refuses the session.
    pub fn refusal(&mut self) -> Option<RefusalReason> {
        match ToClient::parse(&self.read()?) {
            Ok(ToClient::Error { refusal, .. }) => Some(refusal),
            _ => None,
        }
    }

    pub fn closed(&mut self) -> bool {
        match self.tcp.read(&mut [0; 100]) {
            Ok(n) => n == 0,
            Err(e) => e.kind() == ErrorKind::ConnectionReset,
        }
    }

    /// Encodes a datagram of this session.
    pub fn datagram(&self, token: Token, counter: u64, message: &[u8]) -> Vec<u8> {
        let head = Datagram { token, counter, message: &[] }.head();
        let mut message = message.to_vec();
        let keys = self.keys.as_ref().expect("past the handshake");
        let tag: [u8; TAG] = keys.seal_datagram(&head, &mut message).expect("not used up");
        [&head[..], &message, &tag].concat()
    }

    /// Whether the node answers a datagram.
    pub fn pings(&self, token: Token, counter: u64) -> bool {
        let ping = bytes(|w| FromClient::Ping.emit(w));
        self.udp.send(&self.datagram(token, counter, &ping)).expect("sent");
        self.udp.recv(&mut [0; 100]).is_ok()
    }
}

/// Starts a handshake from `client` to `node`, and returns its first message.
pub fn begin(node: &Node, client: u8) -> (Opening, Vec<u8>) {
    let key = identity(node.id as u8).public();
    let entropy = getrandom::u64().expect("entropy").to_be_bytes().repeat(4);
    let entropy = entropy.try_into().expect("32 bytes");
    Opening::begin(&identity(client), &key, entropy).expect("a key")
}

pub fn bytes<E: std::fmt::Debug>(emit: impl FnOnce(&mut Writer<'_>) -> Result<(), E>) -> Vec<u8> {
    let mut out = [0; 100];
    let mut w = Writer::new(&mut out);
    emit(&mut w).expect("room");
    w.written().to_vec()
}
