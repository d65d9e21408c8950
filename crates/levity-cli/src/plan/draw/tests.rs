use std::sync::Arc;

use levity::core::{EffectId, Event, EventKind, RunId, Timestamp};
use levity::dag::{Plan, PlanNotice, Step, StepId, StepUsage};
use levity::observe::PlanView;
use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Cell;
use ratatui_core::terminal::Terminal;

use super::super::streamed::StreamedText;
use super::draw;

struct PlanFixture {
    view: PlanView,
    now: u64,
}

impl PlanFixture {
    fn new(goal: &str) -> Self {
        let mut fixture = Self {
            view: PlanView::new(),
            now: 0,
        };
        fixture.event(EventKind::Goal {
            text: goal.to_owned(),
        });
        fixture
    }

    fn event(&mut self, kind: EventKind) {
        self.now += 100;
        self.view.apply(&Event::new(
            RunId::new("r"),
            self.now,
            Timestamp::from_millis(self.now),
            kind,
        ));
    }

    fn notice(&mut self, notice: &PlanNotice) {
        let data = serde_json::to_value(notice).unwrap_or_default();
        self.event(EventKind::Custom {
            name: PlanNotice::NAME.to_owned(),
            data,
        });
    }

    fn planned(&mut self, plan: Plan) {
        let edges = PlanView::of_plan(plan.clone());
        let id = |at: &u32| edges.steps()[*at as usize].id.clone();
        let edges = edges
            .edges()
            .iter()
            .map(|(from, to)| (id(from), id(to)))
            .collect();
        self.notice(&PlanNotice::Planned {
            plan: Arc::new(plan),
            edges,
        });
    }

    fn started(&mut self, step: &str, effect: u64) {
        let effect = EffectId::new(effect);
        self.notice(&PlanNotice::StepStarted {
            step: step.into(),
            effect,
            attempt: 1,
            round: 1,
            item: None,
        });
    }

    fn completed(&mut self, step: &str) {
        let (step, spent) = (StepId::from(step), StepUsage::default());
        self.notice(&PlanNotice::StepCompleted {
            step,
            writes: Vec::new(),
            output: "x".into(),
            spent,
        });
    }

    fn frame(&self, width: u16, height: u16) -> String {
        let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
        let now = Timestamp::from_millis(self.now);
        let Ok(_) = terminal.draw(|frame| {
            draw(
                &self.view,
                &StreamedText::default(),
                now,
                frame.area(),
                frame.buffer_mut(),
            );
        });
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content.chunks(usize::from(width)).map(|row| {
            let line: String = row.iter().map(Cell::symbol).collect();
            line.trim_end().to_owned() + "\n"
        });
        lines.collect()
    }
}

fn plan() -> Plan {
    Plan::new()
        .step(Step::new("north", "Retriever").writes(["n"]))
        .step(Step::new("south", "Retriever").writes(["s"]))
        .step(Step::new("sum", "Summarizer").reads(["n", "s"]))
}

#[test]
fn frame_shows_tree_above_log() {
    let mut fixture = PlanFixture::new("compare\u{1b}[2J two coasts");
    fixture.planned(plan());
    fixture.started("north", 1);
    fixture.started("south", 2);
    fixture.completed("north");
    let error = "no answer\r\nfrom \u{1b}]0;x\u{7}".to_owned();
    fixture.notice(&PlanNotice::StepFailed {
        step: "south".into(),
        error,
        spent: StepUsage::default(),
    });
    let expected = "\
running · 0 s · 1 of 3 steps · 1 failed · Ctrl-C cancels
ROOT compare�[2J two coasts
├── north ✓ Retriever 200 ms
└── south ✗ Retriever 200 ms: no answer  from �]0;x�
    └── sum ○ Summarizer (also after north)
── log ─────────────────────────────────────────────────────
   0.2s north: starts
   0.3s south: starts
   0.4s north: completed
   0.5s south: failed: no answer  from �]0;x�
";
    assert_eq!(fixture.frame(60, 10), expected);
}

#[test]
fn running_step_is_visible_among_many_steps() {
    let steps: Vec<String> = (0..15).map(|at| format!("step{at:02}")).collect();
    let plan = steps.iter().fold(Plan::new(), |plan, id| {
        plan.step(Step::new(id.as_str(), "Worker"))
    });
    let mut fixture = PlanFixture::new("many");
    fixture.planned(plan);
    for (at, step) in steps.iter().enumerate().take(9) {
        fixture.started(step, at as u64);
        fixture.completed(step);
    }
    fixture.started("step09", 9);
    for height in 4..=30 {
        let frame = fixture.frame(50, height);
        assert_eq!(frame.lines().count(), usize::from(height));
        assert!(
            height < 12 || frame.contains("step09 ◐"),
            "{height}: {frame}"
        );
    }
    let frame = fixture.frame(50, 13);
    assert!(
        frame.contains("… ") && frame.contains(" above\n") && frame.contains(" below\n"),
        "{frame}"
    );
    // No size is too small.
    for (width, height) in [(1, 1), (2, 3), (7, 2), (300, 2)] {
        fixture.frame(width, height);
    }
}

#[test]
fn running_step_is_visible_in_deep_tree() {
    let chain = (0..1_500).fold(Plan::new(), |plan, at: u32| {
        let step = Step::new(format!("step{at}"), "Worker");
        plan.step(if at == 0 {
            step
        } else {
            step.after(format!("step{}", at - 1))
        })
    });
    let mut fixture = PlanFixture::new("deep");
    fixture.planned(chain);
    (0..1_400).for_each(|at| fixture.completed(&format!("step{at}")));
    fixture.started("step1400", 1);
    let frame = fixture.frame(100, 20);
    assert!(frame.contains("step1400 ◐"), "{frame}");
}

#[test]
fn small_screen_shows_steps_without_log() {
    let mut fixture = PlanFixture::new("small");
    fixture.planned(plan());
    fixture.started("south", 2);
    let frame = fixture.frame(40, 6);
    assert!(
        frame.contains("south ◐") && !frame.contains("log"),
        "{frame}"
    );
}
