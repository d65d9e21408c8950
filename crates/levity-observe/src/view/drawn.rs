//! Plans as pictures: Mermaid and Graphviz.

use std::fmt::Write as _;

use levity_dag::StepStatus;

use super::text::{one_line, time};
use super::{PlanView, StepView, edge_kind};

/// How many characters of a text are drawn.
const LONG: usize = 80;

/// Each status with the colours of its steps: inside, line.
const COLOURS: [(StepStatus, &str, &str); 6] = [
    (StepStatus::Pending, "#f2f2f2", "#8c8c8c"),
    (StepStatus::Running, "#d6e8ff", "#1f6feb"),
    (StepStatus::Waiting, "#fff3c4", "#b08800"),
    (StepStatus::Completed, "#d7f5dd", "#1a7f37"),
    (StepStatus::Failed, "#ffdcdc", "#cf222e"),
    (StepStatus::Skipped, "#ffffff", "#bbbbbb"),
];

impl PlanView {
    /// The plan as a Mermaid flowchart, with a class for each status.
    ///
    /// Steps are named `s0`, `s1` and so on in the order of the plan; ids and other texts stand in
    /// labels, escaped.
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        let _ = writeln!(out, "    root([\"ROOT<br/>{}\"])", for_mermaid(&self.goal));
        for (at, step) in self.steps.iter().enumerate() {
            let label = label(step).map(|line| for_mermaid(&line)).join("<br/>");
            let _ = writeln!(out, "    s{at}[\"{label}\"]:::{}", step.status.as_str());
        }
        self.each_edge(|from, to, style| {
            let arrow = if style.dashed { "-.->" } else { "-->" };
            let label = match style.label {
                Some(text) => format!("|\"{}\"|", for_mermaid(&text)),
                None => String::new(),
            };
            let _ = writeln!(out, "    {from} {arrow}{label} {to}");
        });
        for (status, inside, line) in COLOURS {
            let _ = writeln!(
                out,
                "    classDef {} fill:{inside},stroke:{line},color:#1f1f1f",
                status.as_str()
            );
        }
        out
    }

    /// The plan in the language of Graphviz, with a colour for each status.
    ///
    /// Steps are named `s0`, `s1` and so on in the order of the plan; ids and other texts stand in
    /// labels, escaped.
    pub fn dot(&self) -> String {
        let mut out = String::from(
            "digraph plan {\n    node [shape=box, style=\"rounded,filled\", \
                fontname=\"sans-serif\"];\n",
        );
        let _ = writeln!(
            out,
            "    root [label=\"ROOT\\n{}\", shape=ellipse, fillcolor=\"#ffffff\"];",
            for_dot(&self.goal)
        );
        for (at, step) in self.steps.iter().enumerate() {
            let label = label(step).map(|line| for_dot(&line)).join("\\n");
            let (inside, line) = colours(step.status);
            let status = step.status.as_str();
            let _ = writeln!(
                out,
                "    s{at} [label=\"{label}\", class=\"{status}\", fillcolor=\"{inside}\", \
                    color=\"{line}\"];"
            );
        }
        self.each_edge(|from, to, style| {
            let dashed = if style.dashed {
                "style=dashed"
            } else {
                "style=solid"
            };
            let label = style.label.map_or(String::new(), |text| {
                format!(", label=\"{}\"", for_dot(&text))
            });
            let _ = writeln!(out, "    {from} -> {to} [{dashed}{label}];");
        });
        out.push_str("}\n");
        out
    }

    /// The edges by the names of their ends, those from the root first.
    fn each_edge(&self, mut draw: impl FnMut(&str, &str, Style)) {
        for (at, step) in self.steps.iter().enumerate() {
            if step.before.is_empty() {
                draw("root", &format!("s{at}"), Style::default());
            }
        }
        for &(from, to) in &self.edges {
            draw(&format!("s{from}"), &format!("s{to}"), self.style(from, to));
        }
    }

    fn style(&self, from: u32, to: u32) -> Style {
        let step = |at: u32| self.plan.as_ref()?.steps.get(at as usize);
        let Some((from, to)) = step(from).zip(step(to)) else {
            return Style::default();
        };
        let kind = edge_kind(from, to);
        let condition = kind.when.map(|when| format!("if {when}"));
        let label = if kind.stands_in {
            Some("on failure".to_owned())
        } else {
            condition
        };
        Style {
            dashed: label.is_some(),
            label,
        }
    }
}

/// How an edge is drawn.
#[derive(Default)]
struct Style {
    dashed: bool,
    label: Option<String>,
}

fn colours(status: StepStatus) -> (&'static str, &'static str) {
    COLOURS
        .iter()
        .find(|(one, ..)| *one == status)
        .map_or(("#ffffff", "#000000"), |(_, inside, line)| (inside, line))
}

/// What stands in the box of a step: its id, who does it, and where it stands.
fn label(step: &StepView) -> [String; 3] {
    let agent = if step.agent.is_empty() {
        "code"
    } else {
        &step.agent
    };
    let mut stands = step.status.as_str().to_owned();
    if let Some(items) = step.items {
        let _ = write!(stands, " {}/{}", items.done, items.of);
    }
    if let Some(took) = step.took(None) {
        let _ = write!(stands, " in {}", time(took));
    }
    [step.id.as_str().to_owned(), agent.to_owned(), stands]
}

/// A text in a quoted label of Mermaid: whatever could mean something is written by its number.
fn for_mermaid(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in one_line(text, LONG).chars() {
        match char {
            ' ' | '_' | '.' | ',' | '/' | '…' => out.push(char),
            char if char.is_alphanumeric() => out.push(char),
            char => {
                let _ = write!(out, "#{};", u32::from(char));
            }
        }
    }
    out
}

/// A text in a quoted label of Graphviz.
fn for_dot(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in one_line(text, LONG).chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Graphviz reads the entities of HTML in every label.
            '&' => out.push_str("&amp;"),
            char => out.push(char),
        }
    }
    out
}
