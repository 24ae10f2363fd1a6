//! Untrusted text made fit to be kept.

/// Longest name kept, in bytes.
const MAX_NAME: usize = 1024;

/// Valid UTF-8 without control characters, of bounded length.
pub(super) fn clean(bytes: &[u8]) -> String {
    let bytes = bytes.get(..MAX_NAME).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
