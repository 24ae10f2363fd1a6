//! System calls of 32-bit programs. Their numbers are those of i386 (kernel:
//! `arch/x86/entry/syscalls/syscall_32.tbl`); the programs in the kernel mark them with a bit and leave their
//! arguments alone, which are passed in other registers and laid out in other ways.

use pg_event::Sysno;

/// `COMPAT_CALL` in `bpf/records.h`.
const MARK: u16 = 0x8000;
/// No call of x86-64 does the same.
const NONE: u16 = Sysno::NONE.0;

/// The number by which a record names a call, as x86-64 numbers the same call.
pub(super) fn native(call: u16) -> u16 {
    if call == NONE || call & MARK == 0 {
        return call;
    }
    TABLE.get(usize::from(call & !MARK)).copied().unwrap_or(NONE)
}

const fn or_none(n: i16) -> u16 {
    if n < 0 { NONE } else { n as u16 }
}

const TABLE: [u16; I386.len()] = {
    let mut out = [NONE; I386.len()];
    let mut i = 0;
    while i < I386.len() {
        out[i] = or_none(I386[i]);
        i += 1;
    }
    out
};

/// By number of i386; variants that differ in the width of a type only count as the same call, as do
/// `waitpid` and `wait4`. -1: no counterpart (`socketcall`, `ipc`, long gone ones).
#[rustfmt::skip]
const I386: [i16; 451] = [
    219, 60, 57, 0, 1, 2, 3, 61, 85, 86, 87, 59, 80, 201, 133, 90, 94, -1, 4, 8, 39, 165, 166, 105, 102, -1,
    101, 37, 5, 34, 132, -1, -1, 21, 141, -1, 162, 62, 82, 83, 84, 32, 22, 100, -1, 12, 106, 104, 13, 107, 108,
    163, 166, -1, 16, 72, -1, 109, -1, 63, 95, 161, 136, 33, 110, 111, 112, 13, -1, -1, 113, 114, 130, 127, 170,
    160, 97, 98, 96, 164, 115, 116, 23, 88, 6, 89, 134, 167, 169, -1, 9, 11, 76, 77, 91, 93, 140, 141, -1,
    137, 138, 173, -1, 103, 38, 36, 4, 6, 5, 63, 172, 153, -1, -1, 61, 168, 99, -1, 74, 15, 56, 171, 63, 154,
    159, 10, 14, 174, 175, 176, 177, 179, 121, 81, -1, 139, 135, 183, 122, 123, 8, 78, 23, 73, 26, 19, 20,
    124, 75, 156, 149, 150, 151, 152, 142, 143, 144, 145, 24, 146, 147, 148, 35, 25, 117, 118, -1, 178, 7,
    180, 119, 120, 157, 15, 13, 14, 127, 128, 129, 130, 17, 18, 92, 79, 125, 126, 131, 40, 181, 182, 58, 97,
    9, 76, 77, 4, 6, 5, 94, 102, 104, 107, 108, 113, 114, 115, 116, 93, 117, 118, 119, 120, 92, 105, 106,
    122, 123, 155, 27, 28, 217, 72, -1, -1, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198,
    199, 200, 40, 202, 203, 204, 205, 211, 206, 207, 208, 209, 210, 221, -1, 231, 212, 213, 233, 232, 216,
    218, 222, 223, 224, 225, 226, 227, 228, 229, 230, 137, 138, 234, 235, 221, 236, 237, 239, 238, 240, 241,
    242, 243, 244, 245, 246, 247, -1, 248, 249, 250, 251, 252, 253, 254, 255, 256, 257, 258, 259, 260, 261,
    262, 263, 264, 265, 266, 267, 268, 269, 270, 271, 272, 273, 274, 275, 277, 276, 278, 279, 309, 281, 280,
    282, 283, 284, 285, 286, 287, 289, 290, 291, 292, 293, 294, 295, 296, 297, 298, 299, 300, 301, 302, 303,
    304, 305, 306, 307, 308, 310, 311, 312, 313, 314, 315, 316, 317, 318, 319, 321, 322, 41, 53, 49, 42, 50,
    288, 55, 54, 51, 52, 44, 46, 45, 47, 48, 323, 324, 325, 326, 327, 328, 329, 330, 331, 332, 158, 333,
    334, -1, -1, -1, -1, -1, -1, 64, 66, 29, 31, 30, 67, 68, 69, 70, 71, 228, 227, 305, 229, 230, 224, 223, 287,
    286, 280, 270, 271, -1, 333, 299, 242, 243, 220, 128, 202, 148, 424, 425, 426, 427, 428, 429, 430, 431,
    432, 433, 434, 435, 436, 437, 438, 439, 440, 441, 442, 443, 444, 445, 446, 447, 448, 449, 450,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_32_bit_programs_get_their_names() {
        let name = |i386: u16| Sysno(native(MARK | i386)).name().map(std::borrow::Cow::into_owned);
        for (i386, wanted) in [
            (0, "restart_syscall"),
            (3, "read"),
            (7, "wait4"),
            (142, "select"),
            (162, "nanosleep"),
            (168, "poll"),
            (221, "fcntl"),
            (240, "futex"),
            (252, "exit_group"),
            (256, "epoll_wait"),
            (407, "clock_nanosleep"),
            (422, "futex"),
            (426, "io_uring_enter"),
        ] {
            assert_eq!(name(i386).as_deref(), Some(wanted), "{i386}");
        }
        assert_eq!((name(102), name(5000)), (None, None));
        assert_eq!((native(35), native(NONE)), (35, NONE));
    }
}
