//! Copying: by the escape sequence OSC 52, which works through SSH, and by a local tool where there is one.

use std::io::Write;
use std::process::{Command, Stdio};

/// What may be sent by OSC 52: terminals ignore longer ones (xterm's limit is the smallest known).
const OSC52_MAX: usize = 74_000;

/// The escape sequence that asks the terminal to keep a text, wrapped so that tmux or screen hand it on;
/// `None` when the text is too long for it.
pub fn osc52(text: &str, tmux: bool, screen: bool) -> Option<String> {
    let encoded = base64(text.as_bytes());
    if encoded.len() > OSC52_MAX {
        return None;
    }
    let plain = format!("\x1b]52;c;{encoded}\x07");
    Some(if tmux {
        // tmux takes the plain one itself when `set-clipboard` is on, and hands the wrapped one on when
        // `allow-passthrough` is: both are sent, since either may be off.
        format!("{plain}\x1bPtmux;{}\x1b\\", plain.replace('\x1b', "\x1b\x1b"))
    } else if screen {
        // screen cuts device control strings off at 768 bytes: many short ones are joined by the terminal.
        let mut out = String::new();
        for part in plain.as_bytes().chunks(700) {
            out.push_str("\x1bP");
            out.push_str(&String::from_utf8_lossy(part));
            out.push_str("\x1b\\");
        }
        out
    } else {
        plain
    })
}

/// The sequence for the terminal that this process runs in.
pub fn osc52_here(text: &str) -> Option<String> {
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    osc52(text, set("TMUX"), set("STY"))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let n = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = DIGITS[(n >> (18 - 6 * i)) as usize & 63] as char;
            out.push(if i <= three.len() { digit } else { '=' });
        }
    }
    out
}

/// Hands a text to a local clipboard tool. Gives its name, or `None` when there is none for this session.
///
/// # Errors
/// The tool that was named or found failed.
pub fn local(text: &str, configured: &[String]) -> Result<Option<String>, String> {
    if let Some((tool, args)) = configured.split_first() {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        return pipe(tool, &args, text).map(|()| Some(tool.clone())).map_err(|e| format!("{tool}: {e}"));
    }
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let mut tools: Vec<(&str, &[&str])> = Vec::new();
    if set("WAYLAND_DISPLAY") {
        tools.push(("wl-copy", &[]));
    }
    if set("DISPLAY") {
        tools.push(("xclip", &["-selection", "clipboard"]));
        tools.push(("xsel", &["--clipboard", "--input"]));
    }
    if cfg!(target_os = "macos") {
        tools.push(("pbcopy", &[]));
    }
    for (tool, args) in tools {
        match pipe(tool, args, text) {
            Ok(()) => return Ok(Some(tool.to_owned())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{tool}: {e}")),
        }
    }
    Ok(None)
}

fn pipe(tool: &str, args: &[&str], text: &str) -> std::io::Result<()> {
    let mut child = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        // These tools stay in the background to serve the clipboard; they must not hold our output.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(format!("ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_rfc_4648() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }

    #[test]
    fn sequences() {
        assert_eq!(osc52("foo", false, false).as_deref(), Some("\x1b]52;c;Zm9v\x07"));
        assert_eq!(
            osc52("foo", true, false).as_deref(),
            Some("\x1b]52;c;Zm9v\x07\x1bPtmux;\x1b\x1b]52;c;Zm9v\x07\x1b\\")
        );
        assert_eq!(osc52("foo", false, true).as_deref(), Some("\x1bP\x1b]52;c;Zm9v\x07\x1b\\"));
        assert_eq!(osc52(&"x".repeat(80_000), false, false), None);
    }

    #[test]
    fn a_tool_that_is_named_gets_the_text() {
        let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let out = dir.path().join("out");
        let tool = ["sh".into(), "-c".into(), format!("cat > {}", out.display())];
        assert_eq!(local("abc", &tool), Ok(Some("sh".into())));
        assert_eq!(std::fs::read_to_string(out).ok().as_deref(), Some("abc"));
        assert!(local("abc", &["/nonexistent/tool".into()]).is_err());
        assert!(local("abc", &["false".into()]).is_err());
    }
}
