//! Probes in user code, many at once: one link of the kernel's uprobe multi (Linux 6.6) for each file. aya attaches
//! them one by one through perf events, of which each takes the kernel up to 100 ms to close again.
#![allow(unsafe_code)] // bpf(2) has no safe wrapper, and aya does not load programs for this kind of link.

use crate::error::Error;
use crate::sys_bpf;
use aya_obj::Object;
use aya_obj::btf::Btf;
use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_prog_type};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Room for what the verifier says of a program that it refuses.
const LOG: usize = 1 << 18;

/// A place in a file and the number that the program is given when it is come by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// For `bpf_get_attach_cookie`.
    pub cookie: u64,
    /// Where in the file the counter is that says whether somebody listens to this place (a semaphore of
    /// `sys/sdt.h`): the kernel counts it up in each process, and down again when the probe goes. 0: there is none.
    pub semaphore: u64,
}

/// A program for probes.
pub struct Program(OwnedFd);

/// Probes of one file; dropping it takes them out.
pub struct Link {
    _fd: OwnedFd,
}

impl Program {
    /// The programs called `names` in an object, which use the maps with these descriptors and no constants. Where their
    /// fields are in the running kernel's structures, `btf` says.
    ///
    /// # Errors
    /// The object is not readable, or the kernel's refusal.
    pub fn load<const N: usize>(
        object: &[u8],
        names: [&str; N],
        maps: &HashMap<&str, RawFd>,
        btf: &Btf,
    ) -> Result<[Self; N], Error> {
        let unreadable = |e: &dyn std::error::Error| Error::Failed(format!("the programs for probes: {e}"));
        let mut object = Object::parse(object).map_err(|e| unreadable(&e))?;
        object.relocate_btf(btf).map_err(|e| unreadable(&e))?;
        let own = object.maps.clone();
        let given =
            own.iter().filter_map(|(name, map)| Some((name.as_str(), *maps.get(name.as_str())?, map)));
        object.relocate_maps(given, &HashSet::default()).map_err(|e| unreadable(&e))?;
        object.relocate_btf(btf).map_err(|e| unreadable(&e))?;
        let sections: HashSet<usize> = object.functions.keys().map(|f| f.0).collect();
        object.relocate_calls(&sections).map_err(|e| unreadable(&e))?;
        let mut loaded = Vec::new();
        for name in names {
            let program = object.programs.get(name);
            let code = program.and_then(|p| object.functions.get(&p.function_key()));
            let code = code.ok_or_else(|| Error::Failed(format!("the program {name} is missing")))?;
            loaded.push(Self::load_one(name, &code.instructions)?);
        }
        loaded.try_into().map_err(|_| Error::Failed("programs for probes are missing".into()))
    }

    fn load_one(name: &str, code: &[aya_obj::generated::bpf_insn]) -> Result<Self, Error> {
        // What the verifier says is wanted when it refuses, and a program that it takes may have more of it than there is
        // room for.
        let mut log = Vec::new();
        for tries in 0.. {
            let mut attr = sys_bpf::empty();
            // SAFETY: this command's part of the union.
            let load = unsafe { &mut attr.__bindgen_anon_3 };
            load.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
            load.expected_attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
            load.insn_cnt = code.len() as u32;
            load.insns = code.as_ptr() as u64;
            load.license = c"Dual MIT/GPL".as_ptr() as u64;
            if !log.is_empty() {
                load.log_level = 1;
                load.log_size = LOG as u32;
                load.log_buf = log.as_mut_ptr() as u64;
            }
            for (to, from) in load.prog_name.iter_mut().zip(name.bytes().take(15)) {
                *to = from as libc::c_char;
            }
            match sys_bpf::open(bpf_cmd::BPF_PROG_LOAD, &mut attr) {
                Ok(fd) => return Ok(Self(fd)),
                // A signal came while it was checked: see `loading.rs`.
                Err(e) if crate::loading::is_signal(&e) && tries < crate::loading::TRIES => {}
                Err(_) if log.is_empty() => log = vec![0u8; LOG],
                Err(e) => {
                    let text = String::from_utf8_lossy(&log);
                    let told = |l: &&str| !l.starts_with("processed ");
                    let last = text.trim_end_matches('\0').lines().rfind(told).unwrap_or_default().trim();
                    tracing::debug!("verifier: {text}");
                    return Err(Error::Refused {
                        what: format!("the program {name}"),
                        reason: format!("{e} {last}"),
                    });
                }
            }
        }
        unreachable!()
    }

    /// Probes in a file: in the process `pid` and those it forks with its memory, or in whatever process has it.
    ///
    /// # Errors
    /// The kernel's: no such file, not at the beginning of an instruction it can probe, no link of this kind.
    pub fn attach(&self, file: &Path, probes: &[Probe], pid: Option<u32>) -> io::Result<Link> {
        let path = CString::new(file.as_os_str().as_bytes())?;
        let offsets: Vec<u64> = probes.iter().map(|p| p.offset).collect();
        let cookies: Vec<u64> = probes.iter().map(|p| p.cookie).collect();
        let semaphores: Vec<u64> = probes.iter().map(|p| p.semaphore).collect();
        let mut attr = sys_bpf::empty();
        // SAFETY: this command's part of the union, and within it that of this kind of link.
        let link = unsafe { &mut attr.link_create };
        link.__bindgen_anon_1.prog_fd = self.0.as_raw_fd() as u32;
        link.attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
        // SAFETY: as above.
        let multi = unsafe { &mut link.__bindgen_anon_3.uprobe_multi };
        multi.path = path.as_ptr() as u64;
        multi.offsets = offsets.as_ptr() as u64;
        multi.cookies = cookies.as_ptr() as u64;
        if semaphores.iter().any(|&s| s != 0) {
            multi.ref_ctr_offsets = semaphores.as_ptr() as u64;
        }
        multi.cnt = probes.len() as u32;
        multi.pid = pid.unwrap_or(0);
        Ok(Link { _fd: sys_bpf::open(bpf_cmd::BPF_LINK_CREATE, &mut attr)? })
    }
}
