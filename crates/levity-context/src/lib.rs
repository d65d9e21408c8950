//! What an agent goes by: context files, the workspace, and the one value that holds it all.
