//! Python that a model wrote, in an interpreter that can touch nothing.
