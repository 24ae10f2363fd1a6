/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a file descriptor is: the identity both ends of a channel can be found by, and its name, sent
 * once. Everything is read with faults off; what cannot be read leaves the kind unknown.
 */
#ifndef PG_OBJECT_H
#define PG_OBJECT_H

#define READ(src, ...) BPF_CORE_READ(src, ##__VA_ARGS__)

/* A name for what only has a kernel address. The address itself never leaves the kernel. */
static __always_inline u64 address_id(u64 address)
{
	return mix(0x9e3779b97f4a7c15ULL, address) >> 32;
}

/* As stat(2) shows a device number. */
static __always_inline u64 user_device(u32 dev)
{
	u32 major = dev >> 20, minor = dev & 0xfffff;
	return (minor & 0xff) | (major << 8) | ((minor & ~0xffU) << 12);
}

static __always_inline u64 name_hash(struct object *o, u32 form)
{
	return mix(mix(mix(o->kind + 1, o->id), o->peer), form + 77);
}

/* The record for a name of `o`, its text still to be written; none when it was sent already. An object may come to have
 * `another` name. */
static __always_inline struct rec_name *another_name(struct object *o, u32 form, u64 another, u32 which, u64 *hash)
{
	*hash = mix(name_hash(o, form), another);
	struct scratch *s = unsent(*hash) ? scratch(which) : 0;
	if (!s)
		return 0;
	s->name.type = REC_NAME;
	s->name.kind = o->kind;
	s->name.form = form;
	s->name.id = o->id;
	s->name.peer = o->peer;
	return &s->name;
}

/* The same of an object whose name never changes. */
static __always_inline struct rec_name *new_name(struct object *o, u32 form, u32 which, u64 *hash)
{
	return another_name(o, form, 0, which, hash);
}

static __always_inline void send_name(struct rec_name *r, u32 len, u64 hash)
{
	r->len = len;
	if (send(r, sizeof(*r)))
		mark_sent(hash);
}

/* Send the path of a file: its dentries from the leaf up, across mounts. */
int __noinline send_path(struct object *o, u64 file, u32 which)
{
	u64 hash;
	struct file *f = (void *)file;
	struct dentry *d = READ(f, f_path.dentry);
	struct rec_name *r = o ? another_name(o, NAME_PATH, READ(d, d_name.hash_len), which, &hash) : 0;
	if (!r)
		return 0;
	struct vfsmount *mnt = READ(f, f_path.mnt);
	u64 off = bpf_core_field_offset(struct mount, mnt);
	struct mount *m = (void *)mnt - off;
	u32 used = 0;
	u32 more = 0x100;
	for (int i = 0; i < NAME_LEVELS + 6; i++) {
		struct dentry *up = READ(d, d_parent);
		struct dentry *root = READ(m, mnt.mnt_root);
		if (d == root || d == up) {
			struct mount *over = READ(m, mnt_parent);
			if (d != root || over == m || !over) {
				more = 0;
				/* A file that is in no directory (memfd, shared memory) has a name of its own. */
				if (!used) {
					bpf_probe_read_kernel_str(r->text, NAME_BYTES, READ(d, d_name.name));
					used = r->text[0] != '/';
				}
				break;
			}
			d = READ(m, mnt_mountpoint);
			m = over;
			continue;
		}
		if (used >= NAME_LEVELS)
			break;
		const unsigned char *name = READ(d, d_name.name);
		u32 at = used;
		bpf_probe_read_kernel_str(&r->text[BOUND(at, NAME_LEVELS) * NAME_BYTES], NAME_BYTES, name);
		used++;
		d = up;
	}
	send_name(r, used | more, hash);
	return 0;
}

/* Send the address of a unix socket: its own, which who accepts has from the listener, or else its peer's: then
 * it is who connected. */
int __noinline send_unix_name(struct object *o, u64 sock, u64 other, u32 which)
{
	if (!o)
		return 0;
	struct unix_address *addr = READ((struct unix_sock *)sock, addr);
	u32 connected = 0;
	if (!addr && other) {
		addr = READ((struct unix_sock *)other, addr);
		connected = 0x100;
	}
	if (!addr)
		return 0;
	u64 hash;
	struct rec_name *r = new_name(o, NAME_UNIX, which, &hash);
	if (!r)
		return 0;
	int len = READ(addr, len);
	len -= 2; /* the family */
	if (len <= 0)
		return 0;
	if (len > 108)
		len = 108;
	u64 at = bpf_core_field_offset(struct unix_address, name);
	bpf_probe_read_kernel(r->text, 108, (void *)addr + at + 2);
	send_name(r, len | connected, hash);
	return 0;
}

static __always_inline u64 endpoint4(u32 addr_be, u16 port)
{
	return ((u64)__builtin_bswap32(addr_be) << 16) | port;
}

/* IPv6 endpoints are hashed, those that are IPv4 inside are not. */
static __always_inline u64 endpoint6(const u32 *a, u16 port)
{
	if (!a[0] && !a[1] && a[2] == __builtin_bswap32(0xffff))
		return endpoint4(a[3], port);
	u64 h = mix(mix(0x51ed270b9f9ULL, ((u64)a[0] << 32) | a[1]), ((u64)a[2] << 32) | a[3]);
	return (1ULL << 63) | ((h << 16) & ~(1ULL << 63)) | port;
}

/* Send both addresses, which are in the text of the record already. */
static __always_inline void send_inet6(struct object *o, u32 which)
{
	u64 hash;
	struct rec_name *r = new_name(o, NAME_INET6, which, &hash);
	if (r)
		send_name(r, 32, hash);
}

/* The inode number of a socket that a file stands for, 0 for one that was not accepted yet. */
static __always_inline u64 sock_inode(struct sock *sk)
{
	struct socket *so = READ(sk, sk_socket);
	if (!so)
		return 0;
	u64 off = bpf_core_field_offset(struct socket_alloc, socket);
	struct socket_alloc *sa = (void *)so - off;
	return READ(sa, vfs_inode.i_ino);
}

/* Unix datagram sockets by the hash of their address: their inodes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u64);
} bound SEC(".maps");

#include "address.h"

/* Note under which address a unix datagram socket is to be found. */
int __noinline note_bound(u64 sock, u64 inode, u32 which)
{
	struct unix_address *addr = READ((struct unix_sock *)sock, addr);
	struct scratch *s = addr && inode ? scratch(which) : 0;
	if (!s)
		return 0;
	u32 len = READ(addr, len);
	if (len < 3 || len > ADDRESS)
		return 0;
	char *text = s->name.text;
	__builtin_memset(text, 0, 120);
	u64 at = bpf_core_field_offset(struct unix_address, name);
	if (bpf_probe_read_kernel(text, len & 127, (void *)addr + at))
		return 0;
	u64 hash = address_hash(which);
	u64 *known = bpf_map_lookup_elem(&bound, &hash);
	if (!known || *known != inode)
		bpf_map_update_elem(&bound, &hash, &inode, BPF_ANY);
	return 0;
}

/* Identity of a socket. */
int __noinline sock_object(struct object *o, u64 sock, u64 inode, u32 which)
{
	if (!o)
		return 0;
	struct sock *sk = (void *)sock;
	u16 family = READ(sk, __sk_common.skc_family);
	u16 type = READ(sk, sk_type);
	if (family == 1) {
		o->kind = type == 2 ? K_UNIX_DATAGRAM : K_UNIX_STREAM;
		o->id = inode ? inode : sock_inode(sk);
		struct sock *peer = READ((struct unix_sock *)sk, peer);
		o->peer = peer ? sock_inode(peer) : 0;
		if (type == SOCK_DGRAM)
			note_bound(sock, o->id, which);
		send_unix_name(o, sock, (u64)peer, which);
		return 1;
	}
	u16 protocol = READ(sk, sk_protocol);
	if ((family == 2 || family == 10) && (protocol == 6 || protocol == 17 || protocol == 262)) {
		o->kind = protocol == 17 ? K_UDP : K_TCP;
		u16 port = READ(sk, __sk_common.skc_num);
		u16 peer_port = __builtin_bswap16(READ(sk, __sk_common.skc_dport));
		if (family == 2) {
			o->id = endpoint4(READ(sk, __sk_common.skc_rcv_saddr), port);
			o->peer = peer_port ? endpoint4(READ(sk, __sk_common.skc_daddr), peer_port) : 0;
			return 1;
		}
		/* Not on the stack: Linux 6.1 gives 512 bytes of it to all functions that are under way. */
		struct scratch *s = scratch(which);
		if (!s)
			return 0;
		u32 *local = (u32 *)s->name.text, *remote = local + 4;
		bpf_core_read(local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(remote, 16, &sk->__sk_common.skc_v6_daddr);
		o->id = endpoint6(local, port);
		o->peer = peer_port ? endpoint6(remote, peer_port) : 0;
		if (o->id >> 63 || o->peer >> 63)
			send_inet6(o, which);
		return 1;
	}
	o->kind = K_SOCKET;
	o->id = inode ? inode : sock_inode(sk);
	o->peer = 0;
	return 1;
}

/* A terminal: the two ends of a pseudo-terminal have the device number of the slave as identity,
 * the master's with bit 63 set. */
static __always_inline void tty_object(struct object *o, struct file *f, u32 rdev)
{
	struct tty_file_private *p = READ(f, private_data);
	struct tty_struct *tty = p ? READ(p, tty) : 0;
	o->kind = K_TTY;
	o->id = user_device(rdev);
	o->peer = 0;
	if (!tty)
		return;
	int index = READ(tty, index);
	struct tty_driver *driver = READ(tty, driver);
	u32 major = READ(driver, major), minor = READ(driver, minor_start);
	if (major == 128 || major == 136) { /* master, slave of a pseudo-terminal */
		u64 slave = user_device((136 << 20) | index);
		u64 master = slave | (1ULL << 63);
		o->id = major == 128 ? master : slave;
		o->peer = major == 128 ? slave : master;
		return;
	}
	o->id = user_device((major << 20) | (minor + index));
}

static __always_inline u32 word(const char *s)
{
	return (u32)(u8)s[0] | (u32)(u8)s[1] << 8 | (u32)(u8)s[2] << 16 | (u32)(u8)s[3] << 24;
}

/* Files without a path: known by the name the kernel gives them. */
static __always_inline void anon_object(struct object *o, struct file *f)
{
	char name[16] = {};
	const unsigned char *at = READ(f, f_path.dentry, d_name.name);
	bpf_probe_read_kernel_str(name, sizeof(name), at);
	const char *n = name[0] == '[' ? name + 1 : name;
	u32 first = word(n), second = word(n + 4);
	o->id = address_id((u64)f);
	o->peer = 0;
	o->kind = K_ANON;
	if (first == word("even") && second == word("tfd]")) {
		struct eventfd_ctx *ctx = READ(f, private_data);
		o->kind = K_EVENTFD;
		o->id = (u32)READ(ctx, id);
	} else if (first == word("even")) {
		o->kind = K_EPOLL;
	} else if (first == word("time")) {
		o->kind = K_TIMERFD;
	} else if (first == word("sign")) {
		o->kind = K_SIGNALFD;
	} else if (first == word("inot") || first == word("fano")) {
		o->kind = K_INOTIFY;
	} else if (first == word("io_u")) {
		o->kind = K_IO_URING;
	} else if (first == word("pidf")) {
		struct pid *pid = READ(f, private_data);
		o->kind = K_PIDFD;
		o->id = (u32)READ(pid, numbers[0].nr);
	}
}

/* Identity of an open file. */
int __noinline file_object(struct object *o, u64 file, u32 which)
{
	if (!o)
		return 0;
	struct file *f = (void *)file;
	struct inode *in = READ(f, f_inode);
	u32 type = READ(in, i_mode) & S_IFMT;
	u64 number = READ(in, i_ino);
	o->peer = 0;
	if (type == S_IFSOCK) {
		struct socket *so = READ(f, private_data);
		struct sock *sk = READ(so, sk);
		if (sk)
			return sock_object(o, (u64)sk, number, which);
		o->kind = K_SOCKET;
		o->id = number;
		return 1;
	}
	u64 magic = READ(in, i_sb, s_magic);
	if (type == S_IFIFO) {
		o->id = number;
		o->peer = number;
		o->kind = magic == PIPEFS_MAGIC ? K_PIPE : K_FIFO;
		if (o->kind == K_FIFO)
			send_path(o, file, which);
		return 1;
	}
	if (magic == ANON_INODE_FS_MAGIC) {
		anon_object(o, f);
		return 1;
	}
	if (magic == PID_FS_MAGIC) {
		struct pid *pid = READ(in, i_private);
		o->kind = K_PIDFD;
		o->id = (u32)READ(pid, numbers[0].nr);
		return 1;
	}
	u32 rdev = READ(in, i_rdev);
	if (type == S_IFCHR) {
		u32 major = rdev >> 20;
		if (major == 4 || (major == 5 && (rdev & 0xfffff) <= 2) || (major >= 136 && major <= 143)) {
			tty_object(o, f, rdev);
		} else {
			o->kind = K_CHAR;
			o->id = user_device(rdev);
		}
	} else if (type == S_IFBLK) {
		o->kind = K_BLOCK;
		o->id = user_device(rdev);
	} else {
		o->kind = magic == MQUEUE_MAGIC ? K_SYSV : K_FILE;
		o->id = number;
		o->peer = user_device(READ(in, i_sb, s_dev));
	}
	send_path(o, file, which);
	return 1;
}

#endif
