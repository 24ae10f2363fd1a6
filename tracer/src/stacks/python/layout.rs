//! How the data of each CPython version lies in memory (64-bit, release builds).
//!
//! Python 3.13 writes its own layout down for debuggers (`_Py_DebugOffsets` at the head of `_PyRuntime`).
//! For 3.9 to 3.12 the offsets are those of the headers of each version (`Include/internal`), as a C compiler
//! gives them; they do not change between the patch releases of a version.

/// Largest offset believed.
const MAX_OFFSET: u64 = 1 << 22;
/// Words of `_Py_DebugOffsets` in 3.13.
pub(super) const DEBUG_WORDS: usize = 73;
/// What `_Py_DebugOffsets` begins with.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Where a thread state points to its innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Current {
    /// A pointer at this offset.
    At(u64),
    /// A pointer at the first offset to a structure with the pointer at the second.
    Through(u64, u64),
}

/// Which frames begin a call of the interpreter's loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// Every one.
    Each,
    /// Those with this byte set.
    Flag(u64),
    /// Before each one lies a frame on the C stack, which has this value at `owner` and is no function.
    Shim(u8),
}

/// How lines are written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lines {
    /// `co_lnotab`, 3.9.
    Deltas,
    /// `co_linetable` of 3.10.
    Ranges,
    /// `co_linetable` since 3.11.
    Locations,
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameLayout {
    pub previous: u64,
    pub code: u64,
    /// `f_lasti` (an `int`), or a pointer to an instruction.
    pub instruction: u64,
    /// `owner`, where there is one.
    pub owner: Option<u64>,
    pub entry: Entry,
}

/// A code object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CodeLayout {
    pub filename: u64,
    /// The qualified name, where it is kept.
    pub name: u64,
    pub first_line: u64,
    pub lines: u64,
    pub format: Lines,
    /// Where the instructions begin within the code object; before 3.11 they were an object of their own.
    pub instructions: Option<u64>,
    /// Number of instructions before which a frame is being made (3.11 and later).
    pub first_traceable: u64,
}

/// Offsets within the structures of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Within `_PyRuntime`: first interpreter.
    pub interpreters: u64,
    /// Within an interpreter.
    pub next_interpreter: u64,
    pub threads: u64,
    /// Within a thread state.
    pub next_thread: u64,
    pub pthread: u64,
    pub native_id: Option<u64>,
    pub current: Current,
    pub frame: FrameLayout,
    pub code: CodeLayout,
    /// Size of the head of a string with ASCII characters only, and of another.
    pub text_heads: [u64; 2],
}

/// Value of `owner` in frames of generators.
pub(super) const OWNED_BY_GENERATOR: u8 = 1;
/// Within every object: its type.
pub(super) const TYPE: u64 = 8;
/// Within bytes, strings and code: number of elements.
pub(super) const SIZE: u64 = 16;
/// Within a string: what kind it is.
pub(super) const STATE: u64 = 32;
/// Within bytes: the bytes.
pub(super) const CONTENT: u64 = 32;

const V3_9: Layout = Layout {
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    pthread: 176,
    native_id: None,
    current: Current::At(24),
    frame: FrameLayout { previous: 24, code: 32, instruction: 104, owner: None, entry: Entry::Each },
    code: CodeLayout {
        filename: 104,
        name: 112,
        first_line: 40,
        lines: 120,
        format: Lines::Deltas,
        instructions: None,
        first_traceable: 0,
    },
    text_heads: [48, 72],
};

const V3_10: Layout = Layout {
    frame: FrameLayout { instruction: 96, ..V3_9.frame },
    code: CodeLayout { format: Lines::Ranges, ..V3_9.code },
    ..V3_9
};

const V3_11: Layout = Layout {
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    pthread: 152,
    native_id: Some(160),
    current: Current::Through(56, 8),
    frame: FrameLayout { previous: 48, code: 32, instruction: 56, owner: Some(69), entry: Entry::Flag(68) },
    code: CodeLayout {
        filename: 112,
        name: 128,
        first_line: 72,
        lines: 136,
        format: Lines::Locations,
        instructions: Some(184),
        first_traceable: 168,
    },
    text_heads: [48, 72],
};

const V3_12: Layout = Layout {
    interpreters: 40,
    next_interpreter: 0,
    threads: 72,
    next_thread: 8,
    pthread: 136,
    native_id: Some(144),
    current: Current::Through(56, 0),
    frame: FrameLayout { previous: 8, code: 0, instruction: 56, owner: Some(70), entry: Entry::Shim(3) },
    code: CodeLayout { first_line: 68, instructions: Some(192), first_traceable: 176, ..V3_11.code },
    text_heads: [40, 56],
};

impl Layout {
    /// Of a version that does not write down its layout.
    pub fn of_version(minor: u8) -> Option<Self> {
        Some(match minor {
            9 => V3_9,
            10 => V3_10,
            11 => V3_11,
            12 => V3_12,
            _ => return None,
        })
    }

    /// As Python 3.13 writes it down. `None` for other versions, builds without a global lock (their objects
    /// begin otherwise), and what cannot be.
    pub fn of_offsets(words: &[u64; DEBUG_WORDS]) -> Option<Self> {
        let [cookie, version, free_threaded, ..] = *words;
        if cookie != COOKIE || version >> 16 != 0x030d || free_threaded != 0 {
            return None;
        }
        if words.iter().skip(3).any(|&w| w > MAX_OFFSET) || words[45] != TYPE || words[69] != SIZE {
            return None;
        }
        if (words[65], words[66], words[68]) != (SIZE, CONTENT, STATE) {
            return None;
        }
        Some(Self {
            interpreters: words[5],
            next_interpreter: words[8],
            threads: words[9],
            next_thread: words[21],
            pthread: words[24],
            native_id: Some(words[25]),
            current: Current::At(words[23]),
            frame: FrameLayout {
                previous: words[29],
                code: words[30],
                instruction: words[31],
                owner: Some(words[33]),
                entry: Entry::Shim(3),
            },
            code: CodeLayout {
                filename: words[35],
                name: words[37],
                first_line: words[39],
                lines: words[38],
                format: Lines::Locations,
                instructions: Some(words[43]),
                // Not written down; it lies two words before the instructions.
                first_traceable: words[43].checked_sub(16)?,
            },
            // The longer one is not written down: it has the length and the place of the text in UTF-8 besides.
            text_heads: [words[70], words[70].checked_add(16)?],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Python 3.13.0 has them.
    fn offsets() -> [u64; DEBUG_WORDS] {
        let mut w = [0; DEBUG_WORDS];
        (w[0], w[1], w[5], w[8], w[9]) = (COOKIE, 0x030d_00f0, 632, 7264, 7344);
        (w[21], w[24], w[25], w[23]) = (8, 152, 160, 72);
        (w[29], w[30], w[31], w[33]) = (8, 0, 56, 70);
        (w[35], w[37], w[39], w[38], w[43]) = (112, 128, 68, 136, 200);
        (w[45], w[65], w[66], w[68], w[69], w[70]) = (8, 16, 32, 32, 16, 40);
        w
    }

    #[test]
    fn the_layout_written_down_is_taken() {
        let l = Layout::of_offsets(&offsets()).unwrap();
        assert_eq!((l.interpreters, l.threads, l.current), (632, 7344, Current::At(72)));
        assert_eq!((l.code.instructions, l.code.first_traceable), (Some(200), 184));
    }

    #[test]
    fn what_cannot_be_is_no_layout() {
        for (i, v) in [(0, 7), (1, 0x030e_00f0), (2, 1), (5, u64::MAX), (45, 16), (43, 8)] {
            let mut w = offsets();
            w[i] = v;
            assert!(Layout::of_offsets(&w).is_none(), "word {i} = {v:#x}");
        }
        assert!(Layout::of_version(8).is_none() && Layout::of_version(13).is_none());
    }
}
