//! The environment variables of the command line. An empty variable counts as unset.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, Error};
use kubefan_core::upstream::closest;

/// Prefix of all variables of kubefan.
const PREFIX: &str = "KUBEFAN_";

/// Changes the command so that it does not read empty variables.
pub fn ignoring_empty_variables(command: Command) -> Command {
    let is_empty = |arg: &Arg| {
        let variable = arg.get_env().and_then(std::env::var_os);
        variable.is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|arg| {
            if is_empty(&arg) {
                arg.env(None::<&'static str>)
            } else {
                arg
            }
        })
        .mut_subcommands(ignoring_empty_variables)
}

/// Changes the error so that it names the variable and not the flag, if the wrong value is from a
/// variable, and not from the command line `words`.
pub fn naming_variables(mut error: Error, command: &Command, words: &[OsString]) -> Error {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let flag = shown.split([' ', '=']).next().unwrap_or_default();
    let variable = flag.strip_prefix("--").and_then(|long| {
        let args = all_args(command).into_iter();
        let mut args = args.filter(|arg| arg.get_long() == Some(long) && !is_given(arg, words));
        let variable = args.find_map(Arg::get_env)?;
        std::env::var_os(variable).map(|_| variable.to_string_lossy().into_owned())
    });
    if let Some(variable) = variable {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

/// Returns warnings about the variables of this process that have the prefix of kubefan's
/// variables, but are not kubefan's.
pub fn warnings(command: &Command) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut warnings: Vec<_> = names.filter_map(|name| warning(command, &name)).collect();
    warnings.sort_unstable();
    warnings
}

fn warning(command: &Command, name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    // Kubernetes sets these variables in each pod for a Service with a name that begins with
    // `kubefan`.
    let mut parts = ["SERVICE_HOST", "SERVICE_PORT", "PORT"].iter();
    let is_of_service = parts.any(|part| match rest.split_once(part) {
        Some((before, after)) => {
            let is_end = before.is_empty() || before.ends_with('_');
            is_end && (after.is_empty() || after.starts_with('_'))
        }
        None => false,
    });
    let args = all_args(command);
    let known: Vec<_> = args
        .iter()
        .filter_map(|arg| arg.get_env()?.to_str())
        .collect();
    if is_of_service || known.contains(&name) {
        return None;
    }
    let pairs = known.iter().filter_map(|known| {
        let spelling = known.strip_prefix(PREFIX)?;
        Some((spelling.to_owned(), (*known).to_owned()))
    });
    let suggestions = closest(rest, pairs);
    if !suggestions.is_empty() {
        let suggestions = suggestions.join(" or ");
        return Some(format!(
            "kubefan does not know the environment variable {name}; did you mean {suggestions}?"
        ));
    }
    let flag = rest.to_ascii_lowercase().replace('_', "-");
    let has_flag = args.iter().any(|arg| arg.get_long() == Some(&flag));
    has_flag.then(|| {
        format!("kubefan does not know the environment variable {name}; use the flag --{flag}")
    })
}

/// Returns the arguments of the command and of its subcommands.
fn all_args(command: &Command) -> Vec<&Arg> {
    let below = command.get_subcommands().flat_map(all_args);
    command.get_arguments().chain(below).collect()
}

/// Returns true if the argument is on the command line.
fn is_given(arg: &Arg, words: &[OsString]) -> bool {
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    words.iter().any(|word| {
        let word = OsStr::to_string_lossy(word);
        let is_long = |long: &String| {
            word.strip_prefix(long.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        let is_short = |short: &String| word.starts_with(short.as_str());
        long.as_ref().is_some_and(is_long) || short.as_ref().is_some_and(is_short)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::config::tests::ServeLine;

    #[test]
    fn unknown_variables_are_warned_of_with_a_suggestion() {
        let command = ServeLine::command();
        for (name, expected) in [
            ("KUBEFAN_LISTEN", None),
            ("KUBEFAN_LISTN", Some("did you mean KUBEFAN_LISTEN?")),
            ("KUBEFAN_RESOURCE", Some("did you mean KUBEFAN_RESOURCES?")),
            ("KUBEFAN_IDLE_TIMEOUT", Some("use the flag --idle-timeout")),
            // Kubernetes sets these.
            ("KUBEFAN_PORT", None),
            ("KUBEFAN_SERVICE_HOST", None),
            ("KUBEFAN_SERVICE_PORT_HTTPS", None),
            ("KUBEFAN_PORT_8443_TCP_ADDR", None),
            ("KUBEFAN_CENTRAL_SERVICE_HOST", None),
            // The variables of other programs, such as this repository's tests.
            ("KUBEFAN_CONTRACT_SEED", None),
            ("KUBECONFIG", None),
        ] {
            let warning = warning(&command, name);
            assert_eq!(warning.is_some(), expected.is_some(), "{name}: {warning:?}");
            let is_right = |text: &str| warning.is_some_and(|warning| warning.ends_with(text));
            assert!(expected.is_none_or(is_right), "{name}");
        }
    }
}
