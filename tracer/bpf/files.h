/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Files whose identity is known. Each CPU remembers those that were used on it lately: what threads share is looked up
 * once, and a thread that wakes others need not be looked up for that. A file's memory, and its inode's, may have been
 * given to another one: number and addresses together tell.
 */
#ifndef PG_FILES_H
#define PG_FILES_H

#define FILES 256
/* As large as a cache line. */
struct remembered {
	u64 file, inode;
	u64 number; /* of the inode; all bits turned of what has a path, since that may change: it is looked at closer */
	u64 extra;  /* the struct sock of a socket; of what has a path the hash of its name */
	u64 time;   /* when the members of an epoll instance were sent */
	struct object object;
};
struct files {
	struct remembered file[FILES];
};
/* For programs that interrupts do not interrupt (ROOM_SCHED), and for others in the context of a thread (ROOM_TASK). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROOM_TASK + 1);
	__type(key, u32);
	__type(value, struct files);
} files SEC(".maps");

/*
 * Where a file is remembered if it is; nowhere in other rooms. By the number of its inode, since nothing may be computed
 * from an address; that is the same for all epoll instances, so by the descriptor and the process, too.
 */
static __always_inline struct remembered *place_in(struct files *f, u64 number, u32 fd, u32 tgid)
{
	u32 slot = number + fd * 5 + tgid * 17;
	return &f->file[BOUND(slot, FILES)];
}

static __always_inline struct files *known_files(u32 which)
{
	return bpf_map_lookup_elem(&files, &which);
}

static __always_inline struct remembered *place_of(u64 number, u32 fd, u32 tgid, u32 which)
{
	struct files *f = known_files(which);
	return f ? place_in(f, number, fd, tgid) : 0;
}

static __always_inline bool has_path(u32 kind)
{
	return kind == K_FILE || kind == K_FIFO;
}

static __always_inline bool is_socket(u32 kind)
{
	return kind >= K_UNIX_STREAM && kind <= K_SOCKET;
}

/* The open file behind a descriptor, 0 when there is none. */
static __always_inline u64 file_of(struct task_struct *task, u32 fd)
{
	struct fdtable *table = READ(task, files, fdt);
	if (!table || fd >= READ(table, max_fds))
		return 0;
	struct file **at = READ(table, fd) + fd;
	u64 file = 0;
	bpf_probe_read_kernel(&file, sizeof(file), at);
	return file & ~3ULL;
}

#define FILE_CASE(n)                                                   \
	case n:                                                        \
		file = files->fd_array[n];                             \
		/* Not to be made one load at a computed offset. */    \
		asm volatile("%0 = %0; /* %1 */" : "+r"(file) : "i"(n)); \
		break;

/* The open file behind a descriptor of a process with few, as a typed pointer: what it points to are
 * then plain loads, where each read by a helper costs 20 ns and more. 0: look otherwise. `low`: below 16
 * only, which is a quarter of the work for who checks this. */
static __always_inline struct file *file_in_table(struct files_struct *files, u32 fd, const bool low)
{
	struct file *file = 0;
	switch (fd) {
		FILE_CASE(0) FILE_CASE(1) FILE_CASE(2) FILE_CASE(3) FILE_CASE(4) FILE_CASE(5) FILE_CASE(6) FILE_CASE(7)
		FILE_CASE(8) FILE_CASE(9) FILE_CASE(10) FILE_CASE(11) FILE_CASE(12) FILE_CASE(13) FILE_CASE(14) FILE_CASE(15)
	}
	if (low)
		return file;
	switch (fd) {
		FILE_CASE(16) FILE_CASE(17) FILE_CASE(18) FILE_CASE(19) FILE_CASE(20) FILE_CASE(21) FILE_CASE(22) FILE_CASE(23)
		FILE_CASE(24) FILE_CASE(25) FILE_CASE(26) FILE_CASE(27) FILE_CASE(28) FILE_CASE(29) FILE_CASE(30) FILE_CASE(31)
		FILE_CASE(32) FILE_CASE(33) FILE_CASE(34) FILE_CASE(35) FILE_CASE(36) FILE_CASE(37) FILE_CASE(38) FILE_CASE(39)
		FILE_CASE(40) FILE_CASE(41) FILE_CASE(42) FILE_CASE(43) FILE_CASE(44) FILE_CASE(45) FILE_CASE(46) FILE_CASE(47)
		FILE_CASE(48) FILE_CASE(49) FILE_CASE(50) FILE_CASE(51) FILE_CASE(52) FILE_CASE(53) FILE_CASE(54) FILE_CASE(55)
		FILE_CASE(56) FILE_CASE(57) FILE_CASE(58) FILE_CASE(59) FILE_CASE(60) FILE_CASE(61) FILE_CASE(62) FILE_CASE(63)
	}
	return file;
}

/* What is `known` of the file behind a descriptor of the current thread, 0 when it is another file by now. `task`
 * must be typed: its fields are then plain loads. `low`: as above. */
static __always_inline struct remembered *known_file(struct files *known, struct task_struct *task, u32 fd, const bool low)
{
	struct files_struct *files = task->files;
	struct fdtable *table = files->fdt;
	u32 max = table->max_fds;
	if (fd >= max)
		return 0;
	u64 file, inode, number;
	if (max == 64 && (!low || fd < 16)) { /* the table within files_struct */
		struct file *f = file_in_table(files, fd, low);
		if (!f) /* Linux 6.1 does not see that the switch knows all of these */
			return 0;
		struct inode *in = f->f_inode;
		file = (u64)f;
		inode = (u64)in;
		number = in->i_ino;
	} else {
		struct file **at = (struct file **)table->fd + fd;
		file = 0;
		bpf_probe_read_kernel(&file, sizeof(file), at);
		file &= ~3ULL;
		struct inode *in = READ((struct file *)file, f_inode);
		inode = (u64)in;
		number = READ(in, i_ino);
	}
	struct remembered *m = place_in(known, number, fd, task->tgid);
	return file && m->file == file && m->inode == inode && m->number == number ? m : 0;
}

/* Functions of their own: their parts of the stack are not there while a file is looked at. */
static __noinline u64 file_behind(u64 task, u32 fd)
{
	return file_of((struct task_struct *)task, fd);
}

static __noinline u64 extra_of(u32 kind, u64 file)
{
	struct file *f = (void *)file;
	if (has_path(kind))
		return READ(f, f_path.dentry, d_name.hash_len);
	struct socket *so = is_socket(kind) ? READ(f, private_data) : 0;
	return so ? (u64)READ(so, sk) : 0;
}

/* Identity of a descriptor of the thread `of`, remembered while the file is in use. */
int __noinline fd_object(struct object *o, u64 of, u32 fd, u32 which)
{
	struct task_struct *task = (void *)of;
	if (!o)
		return 0;
	u64 file = file_behind(of, fd);
	o->fd = fd;
	if (!file)
		return 0;
	struct file *f = (void *)file;
	struct inode *in = READ(f, f_inode);
	u64 number = READ(in, i_ino);
	struct remembered *m = place_of(number, fd, READ(task, tgid), which);
	if (m && m->file == file && m->inode == (u64)in &&
	    (m->number == number || (m->number == ~number && m->extra == extra_of(m->object.kind, file)))) {
		*o = m->object;
		o->fd = fd;
		/* An interrupt may have put another one in its place meanwhile. */
		if (*(volatile u64 *)&m->file == file)
			return 0;
	}
	if (!file_object(o, file, which) || !m)
		return 0;
	/* An end whose other end is not there yet may get one; a file's identity is settled. */
	if (!o->peer && o->kind != K_FILE && o->kind != K_EVENTFD && o->kind != K_EPOLL)
		return 0;
	u64 extra = extra_of(o->kind, file);
	*(volatile u64 *)&m->file = 0;
	m->object = *o;
	m->inode = (u64)in;
	m->number = has_path(o->kind) ? ~number : number;
	m->time = 0;
	m->extra = extra;
	*(volatile u64 *)&m->file = file;
	return 0;
}

#endif
