use std::fmt::Write as _;

use levity_core::Timestamp;
use levity_dag::StepStatus;

use super::text::{one_line, time};
use super::{PlanView, StepView};

/// How a tree is drawn.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TreeOptions {
    /// Whether only ASCII is used.
    pub ascii: bool,
    /// How many characters a line has at most; 100 by default.
    pub width: usize,
    /// How many children of one step are drawn; 20 by default. Those that run, wait or have failed
    /// come first.
    pub most_children: usize,
    /// How many lines there are at most; 1,000 by default.
    pub most_lines: usize,
    /// What time it is, to say how long running steps have run; until the last event by default.
    pub now: Option<Timestamp>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            ascii: false,
            width: 100,
            most_children: 20,
            most_lines: 1_000,
            now: None,
        }
    }
}

impl TreeOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses only ASCII to draw. Texts are drawn as they are.
    #[must_use]
    pub fn ascii(mut self) -> Self {
        self.ascii = true;
        self
    }

    /// How many characters a line has at most.
    #[must_use]
    pub fn width(mut self, width: usize) -> Self {
        self.width = width;
        self
    }

    /// How many children of one step are drawn.
    #[must_use]
    pub fn most_children(mut self, most: usize) -> Self {
        self.most_children = most;
        self
    }

    /// How many lines there are at most.
    #[must_use]
    pub fn most_lines(mut self, most: usize) -> Self {
        self.most_lines = most;
        self
    }

    /// What time it is.
    #[must_use]
    pub fn now(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }

    /// The sign for a status.
    pub fn mark(&self, status: StepStatus) -> &'static str {
        match (status, self.ascii) {
            (StepStatus::Pending, false) => "○",
            (StepStatus::Running, false) => "◐",
            (StepStatus::Waiting, false) => "◌",
            (StepStatus::Completed, false) => "✓",
            (StepStatus::Failed, false) => "✗",
            (StepStatus::Skipped, false) => "⊘",
            (StepStatus::Pending, true) => "[ ]",
            (StepStatus::Running, true) => "[>]",
            (StepStatus::Waiting, true) => "[?]",
            (StepStatus::Completed, true) => "[x]",
            (StepStatus::Failed, true) => "[!]",
            (StepStatus::Skipped, true) => "[-]",
            (_, false) => "·",
            (_, true) => "[.]",
        }
    }

    fn branches(&self) -> [&'static str; 4] {
        match self.ascii {
            false => ["├── ", "└── ", "│   ", "    "],
            true => ["|-- ", "`-- ", "|   ", "    "],
        }
    }
}

/// How many levels are drawn with their lines; of what is deeper, the levels nearest to it.
const DEEP: usize = 12;
/// How many characters of an id are drawn.
const LONG: usize = 60;
/// How many of the other steps before a step are mentioned.
const MENTIONED: usize = 3;

impl PlanView {
    /// The plan as a tree, with where each step stands.
    ///
    /// A step is drawn once, below the step that was settled last of those before it, or the first
    /// of them while they are not all settled; the others are mentioned. Nothing that stands in a
    /// text makes a terminal do anything.
    pub fn tree(&self, options: TreeOptions) -> String {
        let before = self.before();
        let children = self.children(&before);
        let mut tree = Tree {
            view: self,
            options,
            before,
            children,
            out: String::new(),
            lines: 0,
        };
        tree.draw();
        tree.out
    }

    /// For each step the steps right before it.
    fn before(&self) -> Vec<Vec<u32>> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.steps.len()];
        for &(from, to) in &self.edges {
            if let Some(list) = before.get_mut(to as usize) {
                list.push(from);
            }
        }
        before
    }

    /// For each step the steps that are drawn below it; at the end, those that are drawn below the
    /// root.
    fn children(&self, before: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let parent: Vec<usize> = before
            .iter()
            .map(|list| self.parent(list).map_or(self.steps.len(), |p| p as usize))
            .collect();
        let mut children = vec![Vec::new(); self.steps.len() + 1];
        for (at, home) in out_of_circles(parent).into_iter().enumerate() {
            children[home].push(at as u32);
        }
        children
    }

    fn parent(&self, before: &[u32]) -> Option<u32> {
        let steps = || {
            before
                .iter()
                .filter_map(|at| Some((*at, self.steps.get(*at as usize)?)))
        };
        match steps().all(|(_, step)| step.status.is_settled() && step.ended.is_some()) {
            true => steps()
                .max_by_key(|(at, step)| (step.ended, *at))
                .map(|(at, _)| at),
            false => before.first().copied(),
        }
    }
}

/// Gives each step that leads back to itself to the root, so that all steps are drawn.
fn out_of_circles(mut parent: Vec<usize>) -> Vec<usize> {
    let root = parent.len();
    // 0: not looked at, `n`: looked at in the n-th walk.
    let mut walk = vec![0; root];
    for begin in 0..root {
        let mut at = begin;
        while at < root && walk[at] == 0 {
            walk[at] = begin + 1;
            at = parent[at];
        }
        if at < root && walk[at] == begin + 1 {
            parent[at] = root;
        }
    }
    parent
}

struct Tree<'a> {
    view: &'a PlanView,
    options: TreeOptions,
    before: Vec<Vec<u32>>,
    children: Vec<Vec<u32>>,
    out: String,
    lines: usize,
}

/// What is still to be drawn.
enum Next {
    Step { at: u32, last: bool, depth: usize },
    Rest { text: String, depth: usize },
}

impl Tree<'_> {
    fn draw(&mut self) {
        let goal = if self.view.goal.is_empty() {
            "plan"
        } else {
            &self.view.goal
        };
        self.line(&format!("ROOT {}", one_line(goal, self.options.width)));
        let mut stack = Vec::new();
        // For each level that is being drawn, whether more follows on it.
        let mut open: Vec<bool> = Vec::new();
        self.push(self.view.steps.len(), 0, &mut stack);
        while let Some(next) = stack.pop() {
            if self.lines + 1 >= self.options.most_lines.max(2) && !stack.is_empty() {
                let more = stack
                    .iter()
                    .filter(|next| matches!(next, Next::Step { .. }))
                    .count()
                    + 1;
                self.line(&format!(
                    "{} {more} more, and those below them",
                    self.dots()
                ));
                return;
            }
            let (text, depth, last, below) = match next {
                Next::Step { at, last, depth } => (self.step(at), depth, last, Some(at as usize)),
                Next::Rest { text, depth } => (text, depth, true, None),
            };
            open.truncate(depth);
            let prefix = self.prefix(&open, last);
            self.line(&format!("{prefix}{text}"));
            open.push(!last);
            if let Some(at) = below {
                self.push(at, depth + 1, &mut stack);
            }
        }
    }

    fn prefix(&self, open: &[bool], last: bool) -> String {
        let [branch, end, line, space] = self.options.branches();
        let skipped = open.len().saturating_sub(DEEP);
        let mut prefix = match skipped {
            0 => String::new(),
            levels => format!("{}{levels} ", self.dots()),
        };
        for more in &open[skipped..] {
            prefix.push_str(if *more { line } else { space });
        }
        prefix + if last { end } else { branch }
    }

    fn push(&mut self, of: usize, depth: usize, stack: &mut Vec<Next>) {
        let all = std::mem::take(&mut self.children[of]);
        let (drawn, left) = self.chosen(&all);
        if !left.is_empty() {
            stack.push(Next::Rest {
                text: self.rest(&left),
                depth,
            });
        }
        let cut = !left.is_empty();
        for (place, at) in drawn.iter().enumerate().rev() {
            stack.push(Next::Step {
                at: *at,
                last: !cut && place + 1 == drawn.len(),
                depth,
            });
        }
    }

    /// The children to draw, in the order of the plan, and those that are left out.
    fn chosen(&self, all: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let most = self.options.most_children.max(1);
        if all.len() <= most {
            return (all.to_vec(), Vec::new());
        }
        let mut by_weight = all.to_vec();
        by_weight.sort_by_key(|at| weight(self.view.steps[*at as usize].status));
        let mut left = by_weight.split_off(most);
        by_weight.sort_unstable();
        left.sort_unstable();
        (by_weight, left)
    }

    fn rest(&self, left: &[u32]) -> String {
        let mut text = format!("{} {} more", self.dots(), left.len());
        let mut between = " (";
        for status in STATUSES {
            let count = left
                .iter()
                .filter(|at| self.view.steps[**at as usize].status == status)
                .count();
            if count > 0 {
                let _ = write!(text, "{between}{count} {}", status.as_str());
                between = ", ";
            }
        }
        text + ")"
    }

    fn dots(&self) -> &'static str {
        if self.options.ascii { "..." } else { "…" }
    }

    fn step(&self, at: u32) -> String {
        let step = &self.view.steps[at as usize];
        let mut text = format!(
            "{} {}",
            one_line(step.id.as_str(), LONG),
            self.options.mark(step.status)
        );
        let agent = if step.agent.is_empty() {
            "code"
        } else {
            &step.agent
        };
        let _ = write!(text, " {}", one_line(agent, LONG));
        if let Some(items) = step.items {
            let _ = write!(text, " {}/{}", items.done, items.of);
        }
        if step.attempt > 1 {
            let _ = write!(text, " attempt {}", step.attempt);
        }
        if let Some(took) = step.took(self.options.now.or(self.view.last)) {
            let _ = write!(text, " {}", time(took));
        }
        self.also(at, &mut text);
        let says = match (&step.error, step.status) {
            (Some(error), _) => one_line(error, self.options.width),
            (None, StepStatus::Running | StepStatus::Waiting) => step.activity.to_string(),
            _ => String::new(),
        };
        if !says.is_empty() {
            let _ = write!(text, ": {says}");
        }
        text
    }

    /// Mentions the steps before it that it is not drawn below.
    fn also(&self, at: u32, text: &mut String) {
        let before = &self.before[at as usize];
        if before.len() < 2 {
            return;
        }
        let home = self.view.parent(before);
        let others: Vec<&StepView> = before
            .iter()
            .filter(|from| Some(**from) != home)
            .filter_map(|from| self.view.steps.get(*from as usize))
            .collect();
        let named: Vec<String> = others
            .iter()
            .take(MENTIONED)
            .map(|step| one_line(step.id.as_str(), 30))
            .collect();
        let more = match others.len().saturating_sub(MENTIONED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let _ = write!(text, " (also after {}{more})", named.join(", "));
    }

    fn line(&mut self, line: &str) {
        self.out
            .push_str(&one_line(line, self.options.width.max(10)));
        self.out.push('\n');
        self.lines += 1;
    }
}

const STATUSES: [StepStatus; 6] = [
    StepStatus::Running,
    StepStatus::Waiting,
    StepStatus::Failed,
    StepStatus::Pending,
    StepStatus::Skipped,
    StepStatus::Completed,
];

/// How much a step is worth drawing: the least first.
fn weight(status: StepStatus) -> usize {
    STATUSES
        .iter()
        .position(|one| *one == status)
        .unwrap_or_default()
}
