//! How the C library hands out memory while a session is loaded or written.

#![allow(unsafe_code)] // `mallopt` has no safe wrapper.

/// Lists from this size on get pages of their own, bytes.
const OWN_PAGES: i32 = 128 << 10;
/// Freed memory kept for later, bytes.
const KEEP: i32 = 64 << 20;

/// Long lists shall grow by moving pages. By itself glibc raises the size from which they do with every
/// long list that is freed; then the lists of hundreds of threads that grow by turns are copied and leave
/// holes: of a session of 17 M events a quarter of the peak.
#[cfg(target_env = "gnu")]
pub(super) fn lists_grow_in_pages() {
    // SAFETY: `mallopt` takes two numbers and locks what it changes; a refusal changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEEP);
    }
}

/// Other C libraries have no such setting.
#[cfg(not(target_env = "gnu"))]
pub(super) fn lists_grow_in_pages() {}

/// The largest list that glibc lets share pages with others, bytes.
const MOST: i32 = 32 << 20;

/// Buffers of a recorder come and go many times a second: what one gave back serves the next, where new pages
/// are a tenth of what the recorder costs.
#[cfg(target_env = "gnu")]
pub fn buffers_are_kept() {
    // SAFETY: as above.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MOST);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEEP);
    }
}

/// Other C libraries have no such setting.
#[cfg(not(target_env = "gnu"))]
pub fn buffers_are_kept() {}
