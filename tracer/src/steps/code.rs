//! Machine code: what an instruction does to the flow of control, and how it reads.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction};
use pg_event::trace::{Flow, MAX_CODE};

/// An instruction as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// In AT&T syntax, as objdump and gdb have it by default.
    pub text: String,
    /// The address that a direct jump or call leads to, or that an operand relative to the instruction names.
    pub target: Option<u64>,
}

fn decode(code: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode()
}

fn flow(i: &Instruction) -> Flow {
    match i.flow_control() {
        _ if i.code() == Code::Syscall => Flow::Syscall,
        FlowControl::Next => Flow::Next,
        FlowControl::Call | FlowControl::IndirectCall => Flow::Call,
        FlowControl::Return => Flow::Return,
        _ => Flow::Jump,
    }
}

/// Where an instruction leads and how long it is; an invalid one is one byte long and leads on.
pub fn shape(code: &[u8], address: u64) -> (Flow, usize) {
    let i = decode(code, address);
    if i.is_invalid() { (Flow::Next, 1) } else { (flow(&i), i.len().min(MAX_CODE)) }
}

/// How an instruction at an address reads.
pub fn show(code: &[u8], address: u64) -> Shown {
    let i = decode(code, address);
    if code.is_empty() {
        return Shown { text: "(taken out)".into(), target: None };
    }
    if i.is_invalid() {
        return Shown { text: "(bad)".into(), target: None };
    }
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_rip_relative_addresses(false);
    formatter.format(&i, &mut text);
    let target = match i.near_branch_target() {
        0 if i.is_ip_rel_memory_operand() => Some(i.ip_rel_memory_address()),
        0 => None,
        t => Some(t),
    };
    Shown { text, target }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows() {
        for (code, flow, len) in [
            (&[0x90][..], Flow::Next, 1),
            (&[0xe8, 0, 0, 0, 0], Flow::Call, 5),
            (&[0xff, 0xd0], Flow::Call, 2),
            (&[0xc3], Flow::Return, 1),
            (&[0x0f, 0x05], Flow::Syscall, 2),
            (&[0x75, 0xfe], Flow::Jump, 2),
            (&[0xff, 0xe0], Flow::Jump, 2),
            (&[0x06], Flow::Next, 1),
            (&[], Flow::Next, 1),
        ] {
            assert_eq!(shape(code, 0x1000), (flow, len), "{code:x?}");
        }
    }

    #[test]
    fn texts() {
        assert_eq!(
            show(&[0xe8, 0x0b, 0, 0, 0], 0x1000),
            Shown { text: "call 0x1010".into(), target: Some(0x1010) }
        );
        let load = show(&[0x8b, 0x05, 0xfa, 0x2f, 0, 0], 0x1000);
        assert_eq!((load.target, load.text.as_str()), (Some(0x4000), "mov 0x4000,%eax"));
        assert_eq!(show(&[0x06], 0).text, "(bad)");
        assert_eq!(show(&[], 0).text, "(taken out)");
    }
}
