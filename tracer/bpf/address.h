/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Addresses in calls: for whom datagrams are that are sent without a connection, and to whom connections were to be
 * that did not come about (the socket has forgotten by the time the call returns).
 */
#ifndef PG_ADDRESS_H
#define PG_ADDRESS_H

#define NR_CONNECT 42
#define NR_SENDTO 44
#define NR_SENDMSG 46
#define NR_SENDMMSG 307
#define ADDRESS 110 /* sizeof(struct sockaddr_un) */
#define SOCK_DGRAM 2

/*
 * The address of a unix socket that was just read into the room for names, as a number; what follows a path's end
 * is no part of it. Arithmetic only: each branch would double what the verifier follows.
 */
static __always_inline u64 address_hash(u32 which)
{
	struct scratch *s = scratch(which);
	if (!s)
		return 0;
	const u64 *words = (const u64 *)(s->name.text + 2);
	/* All ones: a path (a name in the abstract has a NUL first), and its end has not come yet. */
	u64 path = -(((u64)(u8)s->name.text[2] + 0xff) >> 8), live = ~0ULL;
	u64 h = 0x6a09e667f3bcc909ULL;
	for (int i = 0; i < 14; i++) {
		u64 w = words[i];
		u64 zero = (w - 0x0101010101010101ULL) & ~w & 0x8080808080808080ULL & path;
		u64 ends = -((zero | -zero) >> 63);
		u64 before = ((zero & -zero) - 1) >> 7;
		h = mix(h, w & live & (before | ~ends));
		live &= ~ends;
	}
	return h;
}

/* Whom the address at `name` means: completes `o`, the socket of the thread that sends there or connects. */
int __noinline addressed(struct object *o, u64 name, u64 len, u32 which)
{
	struct scratch *s = scratch(which);
	if (!o || !s || !name || len < 2)
		return 0;
	if (len > ADDRESS)
		len = ADDRESS;
	char *text = s->name.text;
	__builtin_memset(text, 0, 120);
	if (bpf_probe_read_user(text, len & 127, (void *)name))
		return 0;
	u16 family = *(u16 *)text;
	if (o->kind == K_UNIX_DATAGRAM && family == 1) {
		u64 hash = address_hash(which);
		u64 *inode = bpf_map_lookup_elem(&bound, &hash);
		if (inode)
			o->peer = *inode;
	} else if (o->kind == K_UDP || o->kind == K_TCP) {
		u16 port = __builtin_bswap16(*(u16 *)(text + 2)), own = o->id;
		const u32 nowhere[4] = {};
		u32 to[4];
		if (family == 2) {
			to[0] = *(u32 *)(text + 4);
			o->peer = endpoint4(to[0], port);
			/* Within the machine the kernel sends from the address it sends to, or from 127.0.0.1. */
			if (o->id == own)
				o->id = endpoint4((to[0] & 0xff) == 127 ? 0x0100007f : to[0], own);
		} else if (family == 10) {
			__builtin_memcpy(to, text + 8, 16);
			o->peer = endpoint6(to, port);
			if (o->id == endpoint6(nowhere, own))
				o->id = endpoint6(to, own);
			if (o->kind == K_TCP && o->peer >> 63) {
				__builtin_memcpy(text, to, 16);
				__builtin_memcpy(text + 16, to, 16);
				send_inet6(o, which);
			}
		}
	}
	return 0;
}

/* Name a unix socket that has no peer by the address to which it was to be connected. */
int __noinline dialled(struct object *o, u64 name, u64 len, u32 which)
{
	u64 hash;
	if (!o || !name || len <= 2 || len > ADDRESS)
		return 0;
	struct rec_name *r = new_name(o, NAME_UNIX, which, &hash);
	if (!r)
		return 0;
	len -= 2; /* the family */
	/* The compiler would leave a plain mask out, and Linux 6.1 not see the limit. */
	BOUND(len, 128);
	if (!bpf_probe_read_user(r->text, len, (void *)(name + 2)))
		send_name(r, len | 0x100, hash);
	return 0;
}

/*
 * The same for the call `call` (its number; the room above it), which has these arguments: where the message is, or
 * where the address is and how long.
 */
int __noinline addressed_in(struct object *o, u64 call, u64 si, u64 at, u64 length)
{
	u32 nr = call, which = call >> 32;
	struct {
		u64 name;
		u32 len, pad;
	} message = { .name = at, .len = length };
	if (!o || o->peer)
		return 0;
	if (nr == NR_CONNECT && o->kind == K_UNIX_STREAM)
		return dialled(o, at, length, which);
	if (nr == NR_CONNECT && o->kind == K_TCP)
		return addressed(o, at, length, which);
	if (o->kind != K_UDP && o->kind != K_UNIX_DATAGRAM)
		return 0;
	if (nr == NR_SENDMSG || nr == NR_SENDMMSG) {
		if (bpf_probe_read_user(&message, sizeof(message), (void *)si))
			return 0;
	} else if (nr != NR_SENDTO) {
		return 0;
	}
	addressed(o, message.name, message.len, which);
	return 0;
}

#endif
