//! Completion scripts and manual pages, made from the command line's definition.

use super::args::{Cli, Completions, Man};
use super::exit::{Failure, Outcome};
use clap::CommandFactory;
use std::io::Write;
use std::process::ExitCode;

/// `pg-tui completions`.
pub fn completions(args: &Completions, out: &mut dyn Write) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pg-tui", &mut script);
    out.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// `pg-tui man`.
pub fn man(args: &Man, out: &mut dyn Write) -> Outcome {
    if let Some(dir) = &args.dir {
        let failed = |e: std::io::Error| {
            Failure::Usage(format!("cannot write manual pages to {}: {e}", dir.display()))
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        for (name, page) in pages() {
            std::fs::write(dir.join(format!("{name}.1")), page).map_err(failed)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let name = [&["pg-tui".to_owned()], args.page.as_slice()].concat().join("-");
    let Some((_, page)) = pages().into_iter().find(|(n, _)| *n == name) else {
        let known: Vec<String> =
            pages().into_iter().filter_map(|(n, _)| Some(n.strip_prefix("pg-tui-")?.to_owned())).collect();
        return Err(Failure::Usage(format!("there is no such command; there are {}", known.join(", "))));
    };
    out.write_all(&page)?;
    Ok(ExitCode::SUCCESS)
}

/// A command with all those below it.
fn collect(command: &clap::Command, out: &mut Vec<clap::Command>) {
    out.push(command.clone().version(env!("CARGO_PKG_VERSION")));
    for below in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        collect(below, out);
    }
}

/// Name and text of each page.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut commands = Vec::new();
    collect(&root, &mut commands);
    commands
        .into_iter()
        .map(|c| {
            let name = c.get_display_name().unwrap_or_else(|| c.get_name()).to_owned();
            let mut page = Vec::new();
            // Writing to memory does not fail.
            let _ = clap_mangen::Man::new(c).render(&mut page);
            (name, page)
        })
        .collect()
}
