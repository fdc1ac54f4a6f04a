//! A headless Chromium, controlled over a pair of pipes by the Chrome DevTools Protocol: one JSON
//! object and a zero byte per message.

use base64::Engine as _;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROGRAM: &str = "chromium";

/// Timeout beyond any answer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the browser is installed; if not, prints that the test is skipped. CI, where no test may
/// be skipped, installs it.
pub fn installed() -> bool {
    let there = Command::new(PROGRAM).arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        println!("skipped: {PROGRAM} is not installed");
        assert!(std::env::var_os("CI").is_none(), "{PROGRAM} must be installed in CI");
    }
    there
}

/// A browser with one page, killed when dropped.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<Value>,
    last_id: u64,
    /// Received DevTools events, in order.
    pub events: Vec<Value>,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().expect("a folder for the browser");
        // Chromium reads commands from descriptor 3 and answers on descriptor 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec 3<&0 4>&1 </dev/null >/dev/null; exec \"$@\"", "sh", PROGRAM])
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--mute-audio"])
            // The sandbox cannot be set up as root or in containers.
            .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .arg("--autoplay-policy=no-user-gesture-required")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        let commands = child.stdin.take().expect("piped");
        let mut answers = BufReader::new(child.stdout.take().expect("piped"));
        let (tx, messages) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if tx.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Browser {
            child,
            commands,
            messages,
            session: None,
            last_id: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        browser.session = Some(browser.call("Target.attachToTarget", attach)["sessionId"].clone());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and waits for its result.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.clone();
        }
        let bytes = [message.to_string().as_bytes(), &[0]].concat();
        self.commands.write_all(&bytes).expect("the browser runs");
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let got = self.messages.recv_timeout(left);
            let mut got = got.unwrap_or_else(|e| panic!("no answer to {method}: {e}"));
            if got["id"] == self.last_id {
                assert!(got.get("error").is_none(), "{method}: {got}");
                return got["result"].take();
            }
            if got.get("method").is_some() {
                self.events.push(got);
            }
        }
    }

    /// Opens a file and waits until it has loaded.
    pub fn open(&mut self, file: &Path) {
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({ "url": url }));
        self.eval(
            "new Promise(done => document.readyState === 'complete' ? done() : \
             addEventListener('load', () => done()))",
        );
    }

    /// Evaluates a JavaScript expression, awaiting a promise.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Emulates a window or screen of this size, in CSS pixels.
    pub fn screen(&mut self, width: u32, height: u32, phone: bool) {
        let scale = if phone { 2 } else { 1 };
        let params = json!({
            "width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", params);
    }

    /// Saves the whole page as PNG.
    pub fn screenshot(&mut self, file: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        let png = shot["data"].as_str().expect("base64");
        let png = base64::engine::general_purpose::STANDARD.decode(png).expect("base64");
        std::fs::write(file, png).expect("written");
    }

    /// Errors and warnings on the console, and uncaught exceptions.
    pub fn complaints(&self) -> Vec<&Value> {
        let bad = |e: &&Value| {
            let p = &e["params"];
            let level = |l: &Value| l == "error" || l == "warning" || l == "assert";
            e["method"] == "Runtime.exceptionThrown"
                || e["method"] == "Runtime.consoleAPICalled" && level(&p["type"])
                || e["method"] == "Log.entryAdded" && level(&p["entry"]["level"])
        };
        self.events.iter().filter(bad).collect()
    }

    /// Resources that the page requested, except embedded ones.
    pub fn requests(&self) -> Vec<&str> {
        let sent = self.events.iter().filter(|e| e["method"] == "Network.requestWillBeSent");
        let urls = sent.filter_map(|e| e["params"]["request"]["url"].as_str());
        urls.filter(|url| !url.starts_with("data:")).collect()
    }
}
