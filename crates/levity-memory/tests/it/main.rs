//! Memory over real files and real processes.
