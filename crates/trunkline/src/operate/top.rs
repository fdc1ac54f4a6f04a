//! The `top` command: status and links, flows or calls, live in the terminal.

use super::calls::{self, COLUMNS as CALL_COLUMNS};
use super::client::Client;
use super::flows::{self, FLOW_COLUMNS, flow_row};
use super::protocol::{Call, Flow, Link, Request, Status};
use super::show::{LINK_COLUMNS, link_row, status_lines};
use super::table::Align;
use super::{Error, TopArgs};
use crate::stop::Signals;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use std::cmp::Ordering;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Interval between queries of the node.
const REFRESH: Duration = Duration::from_secs(1);

/// Maximum delay in noticing a termination signal.
const SIGNALS: Duration = Duration::from_millis(100);

/// Runs the `trunkline top` command.
pub fn top(args: &TopArgs) -> Result<(), Error> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let what = "`top` needs a terminal: use `trunkline status --json` and `trunkline links \
                    --json` in scripts";
        return Err(Error::Failed(what.into()));
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        let what = "`top` needs a terminal that can move its cursor, and TERM is `dumb`";
        return Err(Error::Failed(what.into()));
    }
    let mut client = args.at.connect()?;
    let mut screen = Screen::default();
    screen.look(&mut client)?;
    // Done before the terminal is changed, since a signal's default action ends the process without
    // restoring it.
    let signals = Signals::block().map_err(Error::Output)?;
    // This also makes a panic restore the terminal before printing its message.
    let mut terminal = ratatui::try_init().map_err(Error::Output)?;
    let done = run(args, &mut client, &mut screen, &signals, |screen| {
        terminal.draw(|frame| screen.draw(frame)).map(drop)
    });
    ratatui::restore();
    done.map_err(Error::Output)
}

fn run(
    args: &TopArgs,
    client: &mut Client,
    screen: &mut Screen,
    signals: &Signals,
    mut draw: impl FnMut(&mut Screen) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut next = Instant::now() + REFRESH;
    loop {
        draw(screen)?;
        while Instant::now() < next {
            if signals.wait(Duration::ZERO) {
                return Ok(());
            }
            let patience = next.saturating_duration_since(Instant::now()).min(SIGNALS);
            if !event::poll(patience)? {
                continue;
            }
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let stop =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                if stop || screen.key(key.code) {
                    return Ok(());
                }
                // The new view has not been fetched yet.
                if matches!(key.code, KeyCode::Char('c' | 'f')) {
                    break;
                }
            }
            draw(screen)?;
        }
        next = Instant::now() + REFRESH;
        // A restarted node is found at the same path.
        let seen = screen.look(client).or_else(|_| {
            *client = args.at.connect()?;
            screen.look(client)
        });
        screen.trouble = seen.err().map(|e| e.to_string());
    }
}

/// Content of the table.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum View {
    #[default]
    Links,
    Flows,
    Calls,
}

/// State of the screen.
#[derive(Default)]
struct Screen {
    status: Option<Status>,
    view: View,
    links: Vec<Link>,
    flows: Vec<Flow>,
    calls: Vec<Call>,
    /// Whether flows are sorted by nodes and ports, and calls by their start.
    by_name: bool,
    looked: Option<Instant>,
    /// Reason why the last query failed.
    trouble: Option<String>,
    sort: usize,
    reverse: bool,
    first: usize,
}

impl Screen {
    fn look(&mut self, client: &mut Client) -> Result<(), Error> {
        let status = client.ask(&Request::Status {})?;
        let links = client.ask(&Request::Links {})?;
        match self.view {
            View::Links => {}
            View::Flows => self.flows = flows::all(client, None)?,
            View::Calls => self.calls = calls::all(client)?,
        }
        self.take(status, links, Instant::now());
        Ok(())
    }

    fn take(&mut self, status: Status, mut links: Vec<Link>, now: Instant) {
        // A node that does not measure throughput at least counts bytes.
        if let Some(before) = self.looked {
            let elapsed = now.duration_since(before).as_secs_f64().max(1e-3);
            for link in &mut links {
                let same = |l: &&Link| (l.neighbour, &l.path) == (link.neighbour, &link.path);
                let Some(old) = self.links.iter().find(same) else { continue };
                let bps = |new: u64, old: u64| new.saturating_sub(old) as f64 * 8.0 / elapsed;
                let (inward, outward) =
                    (bps(link.bytes_in, old.bytes_in), bps(link.bytes_out, old.bytes_out));
                link.bps_in = link.bps_in.or(Some(inward));
                link.bps_out = link.bps_out.or(Some(outward));
            }
        }
        (self.status, self.links, self.looked) = (Some(status), links, Some(now));
        self.arrange();
    }

    fn arrange(&mut self) {
        let (sort, reverse) = (self.sort, self.reverse);
        self.links.sort_by(|a, b| {
            let order = compare(a, b, sort);
            if reverse { order.reverse() } else { order }
        });
        flows::sort(&mut self.flows, !self.by_name);
        calls::sort(&mut self.calls, !self.by_name);
        if reverse {
            self.flows.reverse();
            self.calls.reverse();
        }
    }

    fn rows(&self) -> usize {
        match self.view {
            View::Links => self.links.len(),
            View::Flows => self.flows.len(),
            View::Calls => self.calls.iter().map(|call| call.legs.len().max(1)).sum(),
        }
    }

    /// Shows `view`, or the links if `view` is already shown.
    fn turn(&mut self, view: View) {
        (self.view, self.first) = (if self.view == view { View::Links } else { view }, 0);
    }

    /// Handles a key; true if it ends the program.
    fn key(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('f') => self.turn(View::Flows),
            KeyCode::Char('c') => self.turn(View::Calls),
            KeyCode::Char('s') if self.view != View::Links => self.by_name = !self.by_name,
            KeyCode::Char('s') => self.sort = (self.sort + 1) % LINK_COLUMNS.len(),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first += 10,
            KeyCode::PageUp => self.first = self.first.saturating_sub(10),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        self.first = self.first.min(self.rows().saturating_sub(1));
        self.arrange();
        false
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let mut about: Vec<_> = match &self.status {
            Some(status) => status_lines(status).into_iter().map(Line::from).collect(),
            None => Vec::new(),
        };
        // On a low screen two links are worth more than all details of the node.
        about.truncate(usize::from(frame.area().height.saturating_sub(5)));
        let rows = [
            Constraint::Length(u16::try_from(about.len()).unwrap_or(u16::MAX)),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ];
        let [top, _, middle, bottom] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Paragraph::new(about), top);
        let (shown, column) = self.content(middle.width);
        let other = match self.view {
            View::Links => "f flows  c calls",
            View::Flows => "f links  c calls",
            View::Calls => "f flows  c links",
        };
        frame.render_widget(shown, middle);
        let order = if self.reverse { ", reversed" } else { "" };
        let foot = match &self.trouble {
            Some(trouble) => format!("{trouble} (trying again)"),
            None => format!("q quit  s sort (by {column}{order})  r reverse  ↑↓ scroll  {other}"),
        };
        let style = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(foot).style(style), bottom);
    }

    /// The table, and the column that it is sorted by.
    fn content(&self, room: u16) -> (Table<'static>, &'static str) {
        let (columns, last, rows, by): (&[_], &[&[usize]], Vec<_>, usize) = match self.view {
            View::Links => {
                let rows = self.links.iter().map(|l| (link_row(l), !l.up)).collect();
                (&LINK_COLUMNS, &LINKS_LAST, rows, self.sort)
            }
            View::Flows => {
                let rows = self.flows.iter().map(|f| (flow_row(f), f.ended)).collect();
                (&FLOW_COLUMNS, &FLOWS_LAST, rows, if self.by_name { 1 } else { MOS })
            }
            View::Calls => {
                let rows = |call| calls::rows(call).into_iter().map(|row| (row, call.is_over()));
                let rows = self.calls.iter().flat_map(rows).collect();
                (&CALL_COLUMNS, &CALLS_LAST, rows, if self.by_name { 3 } else { SORT_COLUMN })
            }
        };
        (self.table(columns, last, rows, by, room), columns[by].0)
    }

    /// Columns of `rows` that fit into `room` completely: a number without its first digits would
    /// be a different one. Each row comes with whether it is highlighted.
    fn table(
        &self,
        columns: &[(&'static str, Align)],
        dispensable: &[&[usize]],
        rows: Vec<(Vec<String>, bool)>,
        sorted: usize,
        room: u16,
    ) -> Table<'static> {
        let widths: Vec<usize> = (0..columns.len())
            .map(|i| {
                let cells = rows.iter().filter_map(|(row, _)| row.get(i));
                let cells = cells.map(|cell| cell.chars().count());
                cells.chain([columns[i].0.len()]).max().unwrap_or(0)
            })
            .collect();
        let shown = fitting(&widths, dispensable, room.into());
        let widths = shown.iter().map(|&i| u16::try_from(widths[i]).unwrap_or(u16::MAX));
        let set = |text: String, i: usize| {
            let alignment = match columns[i].1 {
                Align::Left => Alignment::Left,
                Align::Right => Alignment::Right,
            };
            Cell::from(Text::from(text).alignment(alignment))
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let head = shown.iter().map(|&i| {
            let mark = if i == sorted { Modifier::UNDERLINED } else { Modifier::empty() };
            set(columns[i].0.to_owned(), i).style(Style::new().add_modifier(mark))
        });
        let rows = rows.into_iter().skip(self.first).map(|(row, stands_out)| {
            let style = if stands_out { bold } else { Style::new() };
            Row::new(shown.iter().map(|&i| set(row[i].clone(), i))).style(style)
        });
        Table::new(rows.collect::<Vec<_>>(), widths.map(Constraint::Length))
            .header(Row::new(head).style(bold))
            .column_spacing(2)
    }
}

/// Columns to omit if there is no room, in this order.
const LINKS_LAST: [&[usize]; 10] =
    [&[15], &[13], &[14], &[7, 8], &[4], &[12], &[1], &[11], &[9, 10], &[5, 6]];
const FLOWS_LAST: [&[usize]; 13] =
    [&[4], &[12], &[15], &[5], &[7], &[8], &[11], &[14], &[3], &[17, 18], &[9], &[13], &[10]];
const CALLS_LAST: [&[usize]; 11] =
    [&[6], &[10], &[9], &[12], &[13], &[11], &[8], &[5], &[15], &[3], &[2]];
/// Column by which flows are sorted unless by name, the worst first: MOS over the last 10 s.
const MOS: usize = 16;
/// Column by which calls are sorted unless by start, the worst first: the least R of the call.
const SORT_COLUMN: usize = 14;

/// Indices of the columns with these `widths` that are shown in `room`; related columns are omitted
/// together.
fn fitting(widths: &[usize], dispensable: &[&[usize]], room: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    for group in dispensable {
        if shown.iter().map(|&i| widths[i] + 2).sum::<usize>() <= room + 2 {
            break;
        }
        shown.retain(|i| !group.contains(i));
    }
    shown
}

/// Order of two links by a column; unknown values come last.
fn compare(a: &Link, b: &Link, column: usize) -> Ordering {
    let number = |of: fn(&Link) -> Option<f64>| {
        let key = |l| of(l).map_or(f64::INFINITY, |v| v);
        key(a).total_cmp(&key(b))
    };
    let title = (a.neighbour, &a.path).cmp(&(b.neighbour, &b.path));
    let order = match LINK_COLUMNS[column].0 {
        "address" => a.address.cmp(&b.address),
        "state" => a.up.cmp(&b.up),
        _ => match column {
            3 => number(|l| l.rtt_ms),
            4 => number(|l| l.jitter_ms),
            5 => number(|l| l.loss_in),
            6 => number(|l| l.loss_out),
            7 => number(|l| l.burst_in),
            8 => number(|l| l.burst_out),
            9 => number(|l| l.bps_in),
            10 => number(|l| l.bps_out),
            11 => a.drops.cmp(&b.drops),
            12 => a.downs.cmp(&b.downs),
            13 => a.penalty_ms.total_cmp(&b.penalty_ms),
            14 => number(|l| l.damping_left_s),
            15 => number(|l| l.version.map(f64::from)),
            _ => Ordering::Equal,
        },
    };
    order.then(title)
}

#[cfg(test)]
mod tests {
    use super::super::protocol::CallLeg;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::collections::BTreeMap;

    fn status() -> Status {
        Status {
            name: "site-a".into(),
            id: 1,
            version: "1".into(),
            pid: 7,
            config: "/a.toml".into(),
            uptime_s: 61.0,
            sealed: false,
            certificate_not_after: None,
            sip_certificate_not_after: None,
            missing_addresses: Vec::new(),
            receive_buffer: 1,
            receive_buffer_wanted: 1,
            protocol: None,
            link_versions: BTreeMap::new(),
            draining: true,
            links_up: 1,
            links: 2,
            sessions: 1,
            gateway_sessions: 0,
            streams: 0,
            gateway: false,
            calls: None,
            from_sessions: 0,
            to_sessions: 0,
            forwarded: 5,
            drops: BTreeMap::from([("no_route".to_owned(), 3)]),
            handshakes_refused: BTreeMap::new(),
            updates_refused: BTreeMap::from([("older".to_owned(), 9)]),
            unknown_nodes: Vec::new(),
            routing_differs: Vec::new(),
            routing_differ_count: 0,
            links_denied: 0,
            trunks: Vec::new(),
            trunks_in: Vec::new(),
        }
    }

    fn link(neighbour: u32, rtt_ms: Option<f64>, bytes_in: u64) -> Link {
        Link {
            name: None,
            neighbour,
            path: String::new(),
            version: None,
            address: None,
            host: None,
            lookup_error: None,
            up: rtt_ms.is_some(),
            since_s: None,
            rtt_ms,
            jitter_ms: None,
            loss_in: None,
            loss_out: None,
            burst_in: None,
            burst_out: None,
            bps_in: None,
            bps_out: None,
            penalty_ms: 0.0,
            damping: 0.0,
            damping_left_s: None,
            downs: 0,
            send_error: None,
            silent_next_hop: None,
            no_carrier: None,
            leaves_by: None,
            arrives_at: None,
            stalled_s: None,
            own_queue: false,
            goodbyes: 0,
            bytes_in,
            bytes_out: 0,
            drops: 0,
            updates_refused: BTreeMap::new(),
        }
    }

    fn drawn(screen: &Screen) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(120, 12)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells: Vec<_> = buffer.content().chunks(120).collect();
        let line = |row: &[ratatui::buffer::Cell]| row.iter().map(|c| c.symbol()).collect();
        cells.into_iter().map(line).collect()
    }

    #[test]
    fn the_screen_has_the_node_its_links_and_their_throughput() {
        let mut screen = Screen::default();
        let start = Instant::now();
        screen.take(status(), vec![link(3, Some(20.0), 0), link(2, None, 0)], start);
        let later = start + Duration::from_secs(2);
        screen.take(status(), vec![link(3, Some(20.0), 25_000), link(2, None, 0)], later);
        let lines = drawn(&screen);
        assert!(lines[0].starts_with("site-a is node 1, up 1 min 1 s, draining"), "{lines:#?}");
        assert!(lines[5].starts_with("drops     no_route 3"), "{lines:#?}");
        assert!(lines[7].starts_with("link  address  state"), "{lines:#?}");
        assert!(lines[8].starts_with("2     –        down "), "{lines:#?}");
        assert!(lines[9].starts_with("3     –        up      20.00"), "{lines:#?}");
        assert!(lines[9].contains(" 100.0 "), "25 kB in 2 s are 100 kbit/s: {lines:#?}");
        assert!(lines[11].starts_with("q quit  s sort (by link)"), "{lines:#?}");
    }

    #[test]
    fn what_does_not_fit_is_left_out_whole() {
        let mut screen = Screen::default();
        let mut busy = link(3, Some(20.0), 0);
        (busy.bps_in, busy.downs) = (Some(123_456_700.0), 1_234_567);
        screen.take(status(), vec![busy], Instant::now());
        for (width, height, shows, hides) in
            [(80, 12, "123456.7", "version"), (40, 12, "20.00", "3456.7"), (20, 6, "3", "kbit")]
        {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| screen.draw(frame)).unwrap();
            let text: String =
                terminal.backend().buffer().content().iter().map(|c| c.symbol()).collect();
            let table = &text[text.find("link  ").expect("the table has a place")..];
            assert!(table.contains(shows) && !table.contains(hides), "{width}: {table}");
        }
        drawn(&screen);
    }

    #[test]
    fn flows_are_shown_the_worst_first() {
        let mut screen = Screen { view: View::Flows, ..Screen::default() };
        let flow = |peer: u32, mos: Option<f64>, ended| -> Flow {
            let quality = mos.map(|mos| {
                serde_json::json!({
                    "expected": 200, "lost": 3, "late": 1, "recovered": 9, "missed_share": 0.02,
                    "delay_ms": null, "jitter_ms": 0.8, "r": 70.0, "mos": mos
                })
            });
            let flow = serde_json::json!({
                "direction": "in", "port": 5004, "peer": peer, "peer_port": 6000,
                "service": "real-time", "application": "pbx", "pid": null, "since_s": 90.0,
                "silent_s": 0.01, "ended": ended, "packets": 4_500, "bytes": 774_000,
                "refused": 0, "pps": 50.0, "bps": 68_800.0, "deadline_ms": 100.0, "restarts": 0,
                "last_10s": quality, "call": quality
            });
            serde_json::from_value(flow).expect("a flow")
        };
        screen.flows = vec![
            flow(2, None, true),
            flow(3, Some(4.1), false),
            flow(4, None, false),
            flow(5, Some(2.5), false),
        ];
        screen.take(status(), Vec::new(), Instant::now());
        let lines = drawn(&screen);
        assert!(lines[7].starts_with("flow  peer    port"), "{lines:#?}");
        let peers = |lines: &[String]| -> Vec<String> {
            lines[8..11].iter().map(|line| line[6..7].to_owned()).collect()
        };
        assert_eq!(peers(&lines), ["5", "3", "4"], "{lines:#?}");
        assert!(lines[8].contains("1.50") && lines[8].contains("2.50"), "{lines:#?}");
        assert!(lines[11].contains("by MOS") && lines[11].contains("f links"), "{lines:#?}");
        screen.key(KeyCode::Char('s'));
        assert_eq!(peers(&drawn(&screen)), ["2", "3", "4"]);
        screen.key(KeyCode::Char('f'));
        assert!(drawn(&screen)[7].starts_with("link  address"));
    }

    #[test]
    fn calls_are_shown_the_worst_first() {
        let mut screen = Screen { view: View::Calls, ..Screen::default() };
        let call = |name: &str, state: &str, began: f64, least: &[f64]| -> Call {
            let leg = |least: &f64| CallLeg { r_min: Some(*least), ..CallLeg::default() };
            Call {
                call: name.into(),
                from: format!("sip:{name}@192.0.2.1"),
                to: "sip:b@192.0.2.2".into(),
                state: state.into(),
                began,
                answered: None,
                ended: None,
                outcome: None,
                status: None,
                seconds: 5.0,
                overlay: true,
                local: false,
                legs: least.iter().map(leg).collect(),
            }
        };
        screen.calls = vec![
            call("over", "ended", 1.0, &[20.0, 80.0]),
            call("rings", "ringing", 4.0, &[]),
            call("fine", "up", 3.0, &[90.0, 89.0]),
            call("poor", "up", 2.0, &[90.0, 50.0]),
        ];
        screen.take(status(), Vec::new(), Instant::now());
        assert_eq!(screen.rows(), 7);
        let shown = |screen: &Screen| -> Vec<String> {
            let first = |line: &String| line.split('@').next().unwrap_or_default().to_owned();
            drawn(screen)[8..11].iter().map(first).collect()
        };
        let lines = drawn(&screen);
        assert!(lines[7].starts_with("from  ") && lines[7].contains("least"), "{lines:#?}");
        assert!(lines[11].contains("by least") && lines[11].contains("c links"), "{lines:#?}");
        assert_eq!(shown(&screen)[0], "poor", "{lines:#?}");
        assert!(lines[9].contains(" 50.0"), "{lines:#?}");
        assert_eq!(shown(&screen)[2], "fine");
        screen.key(KeyCode::Char('s'));
        assert_eq!(shown(&screen)[..2], ["rings", "fine"]);
        screen.key(KeyCode::Char('c'));
        assert!(drawn(&screen)[7].starts_with("link  address"));
    }

    #[test]
    fn keys_sort_scroll_and_end() {
        let mut screen = Screen::default();
        let links = vec![link(1, None, 0), link(2, Some(9.0), 0), link(3, Some(5.0), 0)];
        screen.take(status(), links, Instant::now());
        let order = |s: &Screen| s.links.iter().map(|l| l.neighbour).collect::<Vec<_>>();
        assert_eq!(order(&screen), [1, 2, 3]);
        for _ in 0..3 {
            assert!(!screen.key(KeyCode::Char('s')));
        }
        assert_eq!(order(&screen), [3, 2, 1], "by round trip, unknown last");
        screen.key(KeyCode::Char('r'));
        assert_eq!(order(&screen), [1, 2, 3]);
        screen.key(KeyCode::PageDown);
        assert_eq!(screen.first, 2);
        drawn(&screen);
        for _ in 0..LINK_COLUMNS.len() {
            screen.key(KeyCode::Char('s'));
        }
        assert!(screen.key(KeyCode::Char('q')) && screen.key(KeyCode::Esc));
    }
}
