//! `--print`: the manual page and completions for shells, from the definition of the flags.
//!
//! The Debian package contains these texts: `ci/package.sh` writes them by `--print`.
//!
//! A change must ensure that flags come from the definition alone, so that no text lacks a flag.

use std::fmt::Write;

use clap::{Arg, Command, ValueEnum};

/// A text that `--print` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Printed {
    /// The manual page, for `man`.
    Man,
    Bash,
    Zsh,
    Fish,
}

/// Returns the text for a program with these flags.
pub fn text(printed: Printed, command: &mut Command) -> String {
    command.build();
    let flags: Vec<Flag> = command.get_arguments().filter(|arg| !arg.is_hide_set()).map(Flag::of).collect();
    match printed {
        Printed::Man => man(command, &flags),
        Printed::Bash => bash(command.get_name(), &flags),
        Printed::Zsh => zsh(command.get_name(), &flags),
        Printed::Fish => fish(command.get_name(), &flags),
    }
}

/// A flag, as the texts need it.
struct Flag {
    short: Option<char>,
    long: Option<String>,
    /// The name of the flag's value, if the flag takes one.
    value: Option<String>,
    /// The text of `--help`, on one line.
    help: String,
}

impl Flag {
    fn of(arg: &Arg) -> Self {
        let value = arg.get_action().takes_values().then(|| arg.get_value_names().unwrap_or_default());
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        Self {
            short: arg.get_short(),
            long: arg.get_long().map(str::to_owned),
            value: value.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
            help: help.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }

    /// Returns the names, with their dashes.
    fn names(&self) -> Vec<String> {
        let short = self.short.map(|short| format!("-{short}"));
        short.into_iter().chain(self.long.as_ref().map(|long| format!("--{long}"))).collect()
    }

    /// Returns whether the value is a path, which its name tells.
    fn has_path(&self) -> bool {
        self.value.as_deref().is_some_and(|value| matches!(value, "file" | "path"))
    }
}

// Writing to a `String` does not fail, in this file.

fn man(command: &Command, flags: &[Flag]) -> String {
    let (name, version) = (command.get_name(), command.get_version().unwrap_or_default());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut page = format!(
        ".TH {} 8 \"\" \"{name} {version}\" \"System Manager's Manual\"\n.SH NAME\n{} \\- a cache server for memcached's clients\n\
         .SH SYNOPSIS\n.B {}\n[\\fIFLAGS\\fR]\n.SH DESCRIPTION\n{}\n.SH FLAGS\n",
        roff(&name.to_uppercase()),
        roff(name),
        roff(name),
        roff(&about),
    );
    for flag in flags {
        let names: Vec<_> = flag.names().iter().map(|name| format!("\\fB{}\\fR", roff(name))).collect();
        let value = flag.value.as_ref().map_or(String::new(), |value| format!(" \\fI{}\\fR", roff(value)));
        let _ = write!(page, ".TP\n{}{value}\n{}\n", names.join(", "), roff(&flag.help));
    }
    page.push_str(
        ".SH SIGNALS\n.TP\n\\fBSIGHUP\\fR\nreads the files of \\fB\\-\\-config\\fR and \\fB\\-Y\\fR, and the certificate, the key and the authorities (\\fBssl_ca_cert\\fR) of \\fB\\-Z\\fR again\n\
         .TP\n\\fBSIGTERM\\fR, \\fBSIGUSR1\\fR\nend the server, and save the values with \\fB\\-\\-save\\-file\\fR\n\
         .TP\n\\fBSIGINT\\fR\nends the server without saving\n",
    );
    page
}

/// Returns `text`, which is one line, with the characters escaped that have a meaning in a manual
/// page.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins with one of these characters is a request.
    if text.starts_with(['.', '\'']) {
        return format!("\\&{text}");
    }
    text
}

fn bash(name: &str, flags: &[Flag]) -> String {
    let words = |flags: &mut dyn Iterator<Item = &Flag>| flags.flat_map(Flag::names).collect::<Vec<_>>();
    let (all, paths) = (words(&mut flags.iter()), words(&mut flags.iter().filter(|flag| flag.has_path())));
    let others = words(&mut flags.iter().filter(|flag| flag.value.is_some() && !flag.has_path()));
    let function = name.replace('-', "_");
    format!(
        "_{function}() {{\n    local word=\"${{COMP_WORDS[COMP_CWORD]}}\"\n    case \"${{COMP_WORDS[COMP_CWORD-1]}}\" in\n        \
         {paths}) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n        {others}) COMPREPLY=() ;;\n        \
         *) mapfile -t COMPREPLY < <(compgen -W '{all}' -- \"$word\") ;;\n    esac\n}}\ncomplete -F _{function} {name}\n",
        paths = paths.join("|"),
        others = others.join("|"),
        all = all.join(" "),
    )
}

fn zsh(name: &str, flags: &[Flag]) -> String {
    let mut text = format!("#compdef {name}\n_arguments -s \\\n");
    for flag in flags {
        let help = quoted_for_zsh(&flag.help);
        let value = match &flag.value {
            Some(value) if flag.has_path() => format!(":{value}:_files"),
            Some(value) => format!(":{value}: "),
            None => String::new(),
        };
        for name in flag.names() {
            let _ = writeln!(text, "  '*{name}[{help}]{value}' \\");
        }
    }
    text.push_str("  && return 0\n");
    text
}

/// Returns `text` for the brackets of a specification of `_arguments`, in single quotes. The quotes
/// in `text` are escaped last: the shell removes their backslashes before `_arguments` reads the
/// others.
fn quoted_for_zsh(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '[' | ']' | ':') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.replace('\'', "'\\''")
}

fn fish(name: &str, flags: &[Flag]) -> String {
    let mut text = String::new();
    for flag in flags {
        let _ = write!(text, "complete -c {name}");
        if let Some(short) = flag.short {
            let _ = write!(text, " -s {short}");
        }
        if let Some(long) = &flag.long {
            let _ = write!(text, " -l {long}");
        }
        if flag.value.is_some() {
            text.push_str(if flag.has_path() { " -r" } else { " -x" });
        }
        let _ = writeln!(text, " -d '{}'", flag.help.replace('\\', "\\\\").replace('\'', "\\'"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `line` as a shell does with single quotes and backslashes, and returns the words.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match c {
                '\'' => is_quoted = !is_quoted,
                '\\' if !is_quoted => word.extend(chars.next()),
                ' ' if !is_quoted => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
                c => word.push(c),
            }
        }
        assert!(!is_quoted, "an open quote: {line}");
        words.extend(Some(word).filter(|word| !word.is_empty()));
        words
    }

    #[test]
    fn the_page_names_each_file_that_sighup_reads() {
        let text = crate::settings::args::parse(["lowwater-server", "--print", "man"]).unwrap_err().to_string();
        let (_, signals) = text.split_once(".SH SIGNALS").unwrap();
        let hangup = signals.lines().find(|line| line.starts_with("reads")).unwrap();
        for file in ["config", "Y", "certificate", "key", "ssl_ca_cert"] {
            assert!(hangup.contains(file), "{file}: {hangup}");
        }
    }

    #[test]
    fn completions_for_zsh_are_quoted() {
        let help = r"a client's [size]: 1\2";
        let flag = |short| Flag { short: Some(short), long: None, value: None, help: help.to_owned() };
        let text = zsh("program", &[flag('a'), flag('b')]);
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("  '")).collect();
        assert_eq!(lines.len(), 2);
        for (line, name) in lines.into_iter().zip(["-a", "-b"]) {
            let given = line.strip_suffix(" \\").unwrap();
            assert_eq!(words(given), [format!(r"*{name}[a client's \[size\]\: 1\\2]")]);
        }
    }

    #[test]
    fn each_flag_is_one_word_for_zsh() {
        let text = crate::settings::args::parse(["lowwater-server", "--print", "zsh"]).unwrap_err().to_string();
        let flags: Vec<_> = text.lines().filter(|line| line.starts_with("  '")).collect();
        assert!(flags.len() > 30, "{text}");
        for line in flags {
            assert_eq!(words(line.strip_suffix(" \\").unwrap()).len(), 1, "{line}");
        }
    }
}
