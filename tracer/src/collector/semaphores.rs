//! Names of semaphores. The C library makes a named one in a file of another name (`/dev/shm/sem.XXXXXX`) and links that to
//! the one it was asked for (sem_overview(7)), so that whoever made it has the other name mapped, which is no more.

use super::words::peer_of;
use pg_event::SHARED_FUTEX;
use std::fs::{self, Metadata};
use std::os::linux::fs::MetadataExt;
use std::path::Path;

const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "sem.";
/// Most files of the folder that are looked at.
const MOST: usize = 4096;

/// The name that a semaphore's file has now, where that by which it is mapped is no more; `peer`: what its words are known by.
pub fn linked_name(mapped: &str, peer: u64) -> Option<String> {
    let (folder, name) = mapped.rsplit_once('/')?;
    let semaphore = peer & SHARED_FUTEX != 0 && folder == FOLDER && name.starts_with(PREFIX);
    if !semaphore || Path::new(mapped).exists() {
        return None;
    }
    let all = fs::read_dir(FOLDER).ok()?.flatten().take(MOST);
    let mut named = all.filter(|e| e.file_name().to_str().is_some_and(|n| n.starts_with(PREFIX)));
    let it = named.find(|e| fs::symlink_metadata(e.path()).is_ok_and(|m| peer_of(file(&m)) == peer))?;
    Some(format!("{FOLDER}/{}", it.file_name().to_str()?))
}

/// Device (major, minor) and inode.
fn file(m: &Metadata) -> ((u32, u32), u64) {
    ((libc::major(m.st_dev()), libc::minor(m.st_dev())), m.st_ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_more_leads_to_the_one_that_is() {
        let path = format!("{FOLDER}/{PREFIX}pg-tui-test-{}", std::process::id());
        if fs::write(&path, [0; 32]).is_err() {
            println!("skipped: no file can be made in {FOLDER}");
            return;
        }
        let m = fs::metadata(&path).expect("it was made");
        let (dev, inode) = file(&m);
        let (own, another) = (peer_of((dev, inode)), peer_of((dev, inode + 1)));
        let gone = format!("{FOLDER}/{PREFIX}pg-gone-{}", std::process::id());
        let told = linked_name(&gone, own);
        let others = [linked_name(&gone, another), linked_name(&path, own), linked_name("/tmp/sem.x", own)];
        let _ = fs::remove_file(&path);
        assert_eq!(told.as_deref(), Some(path.as_str()));
        assert_eq!(others, [None, None, None]);
        assert_eq!(linked_name(&gone, own), None, "it was removed");
    }
}
