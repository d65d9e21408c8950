//! Situations of stored runs, conversations and sessions.

use super::{HELLO, Row};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "missing journal",
        "levity runs list --journal nowhere",
        1,
        "there is no journal `nowhere`; name one with `--journal`, or start a run with `levity \
         run --journal`",
    )
    .documented(),
    Row::new(
        "unknown run",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         show tuesday --journal j",
        1,
        "there is no run `tuesday`; `levity runs list` shows all runs",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "resume of an unknown run",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         resume tuesday --journal j",
        1,
        "there is no run `tuesday`; `levity runs list` shows all runs",
    )
    .files(&[HELLO]),
    Row::new(
        "removal of an unknown run",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         rm tuesday --journal j",
        1,
        "there is no run `tuesday`; `levity runs list` shows all runs",
    )
    .files(&[HELLO]),
    Row::new(
        "id of a fork is taken",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         fork monday --id monday --journal j",
        1,
        "the run could not continue: run `monday` exists already; resume it, or choose another \
         id",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "id of a swarm is taken",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity swarm \
         -q hi --script hello.json --id monday --journal j",
        2,
        "run `monday` already exists; resume it with `--resume`, or choose another id",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "invalid id",
        "levity run -q hi --script hello.json --journal j --id a/b",
        1,
        "the run could not continue: the journal failed: run `a/b` cannot be stored in a file, \
         which needs an id of at most 200 letters, digits, `.`, `_` and `-` that does not \
         begin with `.`; choose another id",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "journal is locked",
        "levity run hi --script waits.json --journal j.db --id live > out 2>&1 & pid=$!\nuntil \
         grep -qs \"waits  until\" out; do sleep 0.05; done\nlevity runs resume live --quiet \
         --journal j.db; code=$?\nkill $pid; exit $code",
        1,
        "the run could not continue: the journal failed: run `live` is driven by another \
         process; wait for it, or stop that process",
    )
    .files(&[(
        "waits.json",
        r#"[{"call": {"name": "wait", "args": {"seconds": 3600}}}, {"reply": "At last."}]"#,
    )])
    .documented(),
    Row::new(
        "journal of another program",
        "levity run -q hi --script hello.json --journal hello.json",
        2,
        "the journal `hello.json` cannot be read and was left unchanged: it is not an SQLite \
         file; choose another path",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "run of another program",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; echo \
         \"[2026-11-18] started\" > j/monday.jsonl; levity runs show monday --journal j",
        1,
        "the journal `monday.jsonl` cannot be read and was left unchanged: line 1: it is not a \
         levity journal; restore the file from a copy, or name another journal",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "damaged record",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; sed -i \
         \"2s/.*/garbage/\" j/monday.jsonl; levity runs show monday --journal j",
        1,
        "the journal `monday.jsonl` cannot be read and was left unchanged: line 2: it is not \
         record 0; restore the file from a copy, or cut it after line 1 to resume from there; \
         later effects may then run again",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "resume from a damaged journal",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; echo > \
         j/monday.jsonl; levity run -q hi --journal j --id monday",
        1,
        "the run could not continue: the journal failed: the journal `monday.jsonl` cannot be \
         read and was left unchanged: line 1: it is not a levity journal; restore the file \
         from a copy, or name another journal",
    )
    .files(&[HELLO]),
    Row::new(
        "missing export",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         import nowhere --journal j",
        1,
        "cannot read `nowhere`: no such file or folder; check the path",
    )
    .files(&[HELLO]),
    Row::new(
        "damaged export",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         import hello.json --journal j",
        1,
        "line 1 of the export cannot be imported: it is incomplete; export the run again",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "run without question",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         approve monday --journal j",
        1,
        "run `monday` has ended, so it has no open question; `levity runs show monday` shows \
         its answer",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "cancel of an ended run",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         cancel monday --journal j",
        1,
        "run `monday` is not running; `levity runs show monday` shows its state",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "fork after the last record",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         fork monday --after 99 --journal j",
        1,
        "the run could not continue: run `monday` cannot be forked: the last shared record \
         must be between 0 and 2",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "missing conversations",
        "levity conversations list --memory nowhere",
        1,
        "there are no conversations in `nowhere`; name a store with `--memory`, or create one \
         with `levity chat --memory`",
    )
    .documented(),
    Row::new(
        "unknown conversation",
        "levity run -q hi --script hello.json --memory m --conversation c >/dev/null\nlevity \
         conversations show d --memory m",
        1,
        "there is no conversation `d`; `levity conversations list` shows all ids",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "damaged conversation",
        "chmod 600 c.json; levity run -q hi --script hello.json --memory c.json --conversation \
         c",
        1,
        "the conversation could not be read or saved: the stored conversation `c` is damaged \
         and was left unchanged: at line 1, column 1; restore it from a copy",
    )
    .files(&[HELLO, ("c.json", "{")])
    .documented(),
    Row::new(
        "memory of another program",
        "chmod 600 hello.json; mv hello.json m.db; levity run -q hi --memory m.db \
         --conversation c",
        2,
        "the memory `m.db` cannot be read and was left unchanged: it is not an SQLite file; \
         choose another path",
    )
    .files(&[HELLO]),
    Row::new(
        "unknown session",
        "levity sessions show x --sessions nowhere",
        1,
        "session file `nowhere`: no session matches the id `x`; check the id and the folder",
    )
    .documented(),
    Row::new(
        "resume of an unknown session",
        "levity plan --view none --script hello.json --resume x --sessions nowhere",
        2,
        "session file `nowhere`: no session matches the id `x`; check the id and the folder",
    )
    .files(&[HELLO]),
    Row::new(
        "disk is full for a journal",
        "trap '' XFSZ; ulimit -f 0; levity run -q hi --script hello.json --journal j --id \
         monday",
        1,
        "the run could not continue: the journal failed: the journal `monday.jsonl` could not \
         be written: the file is too large; raise the system's limit",
    )
    .files(&[HELLO])
    .notes(1)
    .documented(),
    Row::new(
        "disk is full for an SQLite journal",
        "trap '' XFSZ; ulimit -f 0; levity run -q hi --script hello.json --journal j.db --id \
         monday",
        2,
        "the journal `j.db` could not be created: the disk reports an error or is full; check \
         the free space",
    )
    .files(&[HELLO]),
    Row::new(
        "disk is full for an export",
        "levity run -q hi --script hello.json --journal j --id monday >/dev/null; levity runs \
         export monday --journal j > /dev/full",
        1,
        "cannot write the run: the disk is full; free some space",
    )
    .files(&[HELLO])
    .documented(),
    Row::new(
        "disk is full for the messages of a swarm",
        "levity swarm -q hi --bus /dev/full >/dev/null",
        1,
        "cannot write the messages to `/dev/full`: the disk is full; free some space",
    )
    .documented(),
    Row::new(
        "no terminal for the approval of a plan",
        "levity plan hi --view none --ask-plan",
        1,
        "the run was cancelled: the plan was refused: there is no terminal to ask for \
         approval; use `--park` to decide later",
    )
    .notes(3)
    .documented(),
];
