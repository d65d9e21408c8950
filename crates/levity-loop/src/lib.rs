//! The agent: goal, plan, act, observe, reflect.
