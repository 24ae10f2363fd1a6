//! Which control group a process is shown with, and which container that is.

use crate::procfs::CgroupLine;

/// The one path shown for a process that is in several hierarchies: that of version 2, else systemd's,
/// else the deepest of version 1.
pub fn main_cgroup(lines: &[CgroupLine]) -> &str {
    let of = |controllers: &str| {
        lines.iter().find(|l| l.controllers == controllers && l.path != "/").map(|l| l.path.as_str())
    };
    of("")
        .or_else(|| of("name=systemd"))
        .or_else(|| {
            let deepest = lines.iter().max_by_key(|l| (l.path.matches('/').count(), l.path.len()))?;
            Some(deepest.path.as_str())
        })
        .unwrap_or("")
}

/// Short id or name of the container a control group belongs to, empty if none: docker, podman,
/// containerd, CRI-O (the first 12 digits of the id, as these tools print it), LXC and systemd-nspawn
/// (the container's name). With containers in containers, the innermost.
pub fn container_of(path: &str) -> String {
    let mut found = String::new();
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    for (i, part) in parts.iter().enumerate() {
        let name = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".service")).unwrap_or(part);
        // The runtime's own monitor of a container is not inside it.
        if name.starts_with("libpod-conmon-") || name.starts_with("crio-conmon-") {
            continue;
        }
        // `ID`, `docker-ID`, `libpod-ID`, `crio-ID`, `cri-containerd-ID`, `nerdctl-ID`,
        // `cri-containerd:SLICE:ID` of a containerd without the systemd driver's names.
        let last = name.rsplit(['-', ':']).next().unwrap_or(name);
        if last.len() == 64 && last.bytes().all(|b| b.is_ascii_hexdigit()) {
            last[..12].clone_into(&mut found);
        } else if let Some(name) = name.strip_prefix("lxc.payload.") {
            name.clone_into(&mut found);
        } else if matches!(*part, "lxc" | "lxc.payload") {
            if let Some(name) = parts.get(i + 1) {
                (*name).clone_into(&mut found);
            }
        } else if let Some(name) = name.strip_prefix("systemd-nspawn@") {
            found = unescape(name);
        } else if let Some(name) = name.strip_prefix("machine-") {
            // libvirt registers its virtual machines the same way; those are not containers.
            if part.len() > name.len() + "machine-".len() && !name.starts_with("qemu") {
                found = unescape(name);
            }
        }
    }
    found
}

/// Undo systemd's escaping of unit names (systemd.unit(5)): `\x2d` is `-`.
fn unescape(name: &str) -> String {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after
            .strip_prefix(b"x")
            .and_then(|d| d.get(..2))
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 16).ok());
        match code {
            Some(byte) if first == b'\\' => {
                out.push(byte);
                rest = &after[3..];
            }
            _ => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::parse_cgroup;

    #[test]
    fn container_paths() {
        let id = "0123456789abcdef".repeat(4);
        let short = "0123456789ab";
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope/container"),
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope"),
            format!("/libpod_parent/libpod-{id}"),
            format!("/kubepods/burstable/pod0c5b1b9e-11aa/{id}"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/kubepods.slice/kubepods-besteffort.slice/crio-{id}.scope"),
            format!("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{id}"),
            format!("/default/{id}"),
            format!("/ecs/task/{id}"),
            format!("/docker/{}/docker/{id}", "f".repeat(64)),
        ] {
            assert_eq!(container_of(&path), short, "{path}");
        }
        assert_eq!(container_of("/lxc/web/init.scope"), "web");
        assert_eq!(container_of("/lxc.payload.web/system.slice/x.service"), "web");
        assert_eq!(container_of("/machine.slice/systemd-nspawn@deb\\x2d12.service/payload"), "deb-12");
        assert_eq!(container_of("/machine.slice/machine-build.scope"), "build");
    }

    #[test]
    fn not_containers() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            String::new(),
            "/".into(),
            "/user.slice/user-1000.slice/session-2.scope".into(),
            format!("/machine.slice/libpod-conmon-{id}.scope"),
            "/system.slice/docker.service".into(),
            "/lxc.monitor.web".into(),
            "/lxc".into(),
            "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope".into(),
            format!("/jobs/{}", "ab".repeat(16)),
        ] {
            assert_eq!(container_of(&path), "", "{path}");
        }
    }

    #[test]
    fn one_path_of_several_hierarchies() {
        let hybrid = b"9:name=systemd:/\n4:memory:/box/one\n0::/\n";
        assert_eq!(main_cgroup(&parse_cgroup(hybrid)), "/box/one");
        let v1 = b"9:name=systemd:/user.slice\n4:memory:/box/one/two\n";
        assert_eq!(main_cgroup(&parse_cgroup(v1)), "/user.slice");
        assert_eq!(main_cgroup(&parse_cgroup(b"0::/a.slice/b.scope\n")), "/a.slice/b.scope");
        assert_eq!(main_cgroup(&[]), "");
    }

    #[test]
    fn unescaping_keeps_what_it_does_not_know() {
        assert_eq!(unescape("a\\x2db"), "a-b");
        assert_eq!(unescape("a\\x2"), "a\\x2");
        assert_eq!(unescape("\\\\xzz"), "\\\\xzz");
    }
}
