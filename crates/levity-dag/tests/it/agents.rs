//! Steps by agents: rounds, code, verdicts, questions.
