//! `hapax`, as it is shipped.

use std::process::ExitCode;

/// A server makes many small allocations for each request, and the system's allocator is slow at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    hapax_cli::main()
}
