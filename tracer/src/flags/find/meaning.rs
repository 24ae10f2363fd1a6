//! What a programmer calls an address: variables, members and pointers, by DWARF debug information.

use crate::flags::variables::Binary;
use crate::stacks::open_plain;
use gimli::Reader;
use gimli::{
    Attribute, AttributeValue, DebuggingInformationEntry, Dwarf, EndianArcSlice, LittleEndian, Operation,
    Unit, UnitOffset, constants as dw,
};
use object::{Object, ObjectSection, ReadCache};
use std::sync::Arc;
use std::time::{Duration, Instant};

type R = EndianArcSlice<LittleEndian>;
type Entry = DebuggingInformationEntry<R>;

/// Longest search in a program's debug information.
const LONG: Duration = Duration::from_secs(3);
/// Deepest nesting of types followed.
const DEEP: u32 = 16;

/// The name of something in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meaning {
    /// As in the source: `window->shown`.
    pub expression: String,
    /// Where the variable is declared: file and line.
    pub declared: Option<(String, u64)>,
}

/// The debug information of a binary.
pub struct Info {
    dwarf: Dwarf<R>,
    until: Instant,
}

/// A variable: its name, place, and type.
struct Variable {
    name: String,
    offset: u64,
    kind: Option<UnitOffset>,
    declared: Option<(String, u64)>,
}

/// Where a local variable is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Address of an instruction, as its file counts.
    pub pc: u64,
    /// The register it is in, by its DWARF number; or
    pub register: Option<u16>,
    /// where it lies, relative to the canonical frame address.
    pub frame: Option<i64>,
}

impl Info {
    /// Read it; `None` when there is none.
    pub fn of(binary: &Binary) -> Option<Self> {
        binary.files().iter().find_map(|path| {
            let cache = ReadCache::new(open_plain(path)?);
            let file = object::File::parse(&cache).ok()?;
            file.section_by_name(".debug_info")?;
            let load = |id: gimli::SectionId| -> Result<R, gimli::Error> {
                let data = file.section_by_name(id.name()).and_then(|s| s.uncompressed_data().ok());
                Ok(R::new(Arc::from(data.unwrap_or_default().as_ref()), LittleEndian))
            };
            Some(Self { dwarf: Dwarf::load(load).ok()?, until: Instant::now() + LONG })
        })
    }

    fn each_unit<T>(&self, mut look: impl FnMut(&Unit<R>) -> Option<T>) -> Option<T> {
        let mut units = self.dwarf.units();
        while let Ok(Some(header)) = units.next() {
            if Instant::now() > self.until {
                return None;
            }
            let found = self.dwarf.unit(header).ok().and_then(|u| look(&u));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The global variable at an address (as its file counts).
    pub fn global(&self, address: u64) -> Option<Meaning> {
        self.each_unit(|u| {
            let v = self.global_in(u, address)?;
            let (path, _) = v.kind.and_then(|k| self.member(u, k, v.offset, 0)).unwrap_or_default();
            Some(Meaning { expression: v.name + &path, declared: v.declared })
        })
    }

    /// What lies `behind` bytes behind the global pointer at an address.
    pub fn behind_global(&self, address: u64, behind: i64) -> Option<Meaning> {
        self.each_unit(|u| {
            let v = self.global_in(u, address)?;
            self.behind(u, v, behind)
        })
    }

    /// What lies behind a pointer in a local variable, or, without `behind`, the local variable itself.
    pub fn local(&self, at: Local, behind: Option<i64>) -> Option<Meaning> {
        self.each_unit(|u| {
            let mut ranges = self.dwarf.unit_ranges(u).ok()?;
            let mut within = false;
            while let Ok(Some(r)) = ranges.next() {
                within |= (r.begin..r.end).contains(&at.pc);
            }
            if !within {
                return None;
            }
            let v = self.local_in(u, at)?;
            match behind {
                Some(behind) => self.behind(u, v, behind),
                None => Some(Meaning { expression: v.name, declared: v.declared }),
            }
        })
    }

    fn behind(&self, u: &Unit<R>, v: Variable, behind: i64) -> Option<Meaning> {
        let (path, kind) = self.member(u, v.kind?, v.offset, 0)?;
        let pointer = plain(u, kind?, 0)?;
        let entry = u.entry(pointer).ok()?;
        if entry.tag() != dw::DW_TAG_pointer_type && entry.tag() != dw::DW_TAG_reference_type {
            return None;
        }
        let name = v.name + &path;
        let to = kind_of(&entry)?;
        let offset = u64::try_from(behind).ok()?;
        let (inner, _) = self.member(u, to, offset, 0)?;
        let expression = match inner.strip_prefix('.') {
            Some(inner) => format!("{name}->{inner}"),
            None if inner.is_empty() && offset == 0 => format!("*{name}"),
            None => format!("{name}{inner}"),
        };
        Some(Meaning { expression, declared: v.declared })
    }

    fn global_in(&self, u: &Unit<R>, address: u64) -> Option<Variable> {
        let mut entries = u.entries();
        while let Ok(Some(e)) = entries.next_dfs() {
            if e.tag() != dw::DW_TAG_variable {
                continue;
            }
            let Some(AttributeValue::Exprloc(expression)) = e.attr_value(dw::DW_AT_location) else {
                continue;
            };
            let mut operations = expression.operations(u.encoding());
            let at = match operations.next() {
                Ok(Some(Operation::Address { address })) => address,
                Ok(Some(Operation::AddressIndex { index })) => self.dwarf.address(u, index).ok()?,
                _ => continue,
            };
            let v = self.variable(u, e, 0);
            let size = v.kind.and_then(|k| size(u, k, 0)).unwrap_or(1);
            if address >= at && address - at < size.max(1) {
                return Some(Variable { offset: address - at, ..v });
            }
        }
        None
    }

    fn local_in(&self, u: &Unit<R>, at: Local) -> Option<Variable> {
        let mut entries = u.entries();
        // How deep the innermost function around the instruction lies.
        let mut inside: Option<isize> = None;
        let mut found = None;
        while let Ok(Some(e)) = entries.next_dfs() {
            if inside.is_some_and(|d| e.depth() <= d) {
                break;
            }
            if e.tag() == dw::DW_TAG_subprogram {
                let mut ranges = self.dwarf.die_ranges(u, e).ok()?;
                while let Ok(Some(r)) = ranges.next() {
                    if (r.begin..r.end).contains(&at.pc) {
                        inside = Some(e.depth());
                    }
                }
            } else if inside.is_some()
                && matches!(e.tag(), dw::DW_TAG_variable | dw::DW_TAG_formal_parameter)
                && e.attr_value(dw::DW_AT_location).is_some_and(|l| self.is_there(u, l, at))
            {
                found = Some(self.variable(u, e, 0));
            }
        }
        found.filter(|v| !v.name.is_empty())
    }

    /// Does this location say that the variable is there at that instruction?
    fn is_there(&self, u: &Unit<R>, location: AttributeValue<R>, at: Local) -> bool {
        let fits = |expression: gimli::Expression<R>| {
            let mut operations = expression.operations(u.encoding());
            let first = operations.next();
            let alone = matches!(operations.next(), Ok(None));
            match first {
                Ok(Some(Operation::Register { register })) => alone && Some(register.0) == at.register,
                Ok(Some(Operation::FrameOffset { offset })) => alone && Some(offset) == at.frame,
                _ => false,
            }
        };
        if let AttributeValue::Exprloc(expression) = location {
            return fits(expression);
        }
        let Ok(Some(mut list)) = self.dwarf.attr_locations(u, location) else { return false };
        while let Ok(Some(entry)) = list.next() {
            if (entry.range.begin..entry.range.end).contains(&at.pc) && fits(entry.data) {
                return true;
            }
        }
        false
    }

    /// Name, type and declaration of a variable, which may be told by another entry.
    fn variable(&self, u: &Unit<R>, e: &Entry, depth: u32) -> Variable {
        let mut v = Variable {
            name: self.text(u, e.attr(dw::DW_AT_name)),
            offset: 0,
            kind: kind_of(e),
            declared: self.declared(u, e),
        };
        let origin =
            e.attr_value(dw::DW_AT_abstract_origin).or_else(|| e.attr_value(dw::DW_AT_specification));
        if let Some(AttributeValue::UnitRef(other)) = origin
            && depth < DEEP
            && let Ok(other) = u.entry(other)
        {
            let o = self.variable(u, &other, depth + 1);
            if v.name.is_empty() {
                v.name = o.name;
            }
            v.kind = v.kind.or(o.kind);
            v.declared = v.declared.or(o.declared);
        }
        v
    }

    fn text(&self, u: &Unit<R>, attribute: Option<&Attribute<R>>) -> String {
        attribute
            .and_then(|a| self.dwarf.attr_string(u, a.value()).ok())
            .and_then(|s| s.to_slice().ok().map(|b| crate::stacks::readable(&b)))
            .unwrap_or_default()
    }

    fn declared(&self, u: &Unit<R>, e: &Entry) -> Option<(String, u64)> {
        let line = e.attr_value(dw::DW_AT_decl_line)?.udata_value()?;
        let number = match e.attr_value(dw::DW_AT_decl_file)? {
            AttributeValue::FileIndex(n) => n,
            other => other.udata_value()?,
        };
        let program = u.line_program.as_ref()?;
        let file = program.header().file(number)?;
        let name = self.dwarf.attr_string(u, file.path_name()).ok()?;
        let name = crate::stacks::readable(&name.to_slice().ok()?);
        Some((name, line))
    }

    /// What lies so far into something of this type: `.list[2].head`, and its type.
    fn member(
        &self,
        u: &Unit<R>,
        kind: UnitOffset,
        offset: u64,
        depth: u32,
    ) -> Option<(String, Option<UnitOffset>)> {
        let plain = plain(u, kind, 0)?;
        let e = u.entry(plain).ok()?;
        let here = Some((String::new(), Some(kind)));
        if depth >= DEEP {
            return here;
        }
        match e.tag() {
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let mut tree = u.entries_tree(Some(plain)).ok()?;
                let mut children = tree.root().ok()?.children();
                let mut best: Option<(u64, String, UnitOffset)> = None;
                while let Ok(Some(child)) = children.next() {
                    let c = child.entry();
                    if c.tag() != dw::DW_TAG_member {
                        continue;
                    }
                    let at = c
                        .attr_value(dw::DW_AT_data_member_location)
                        .and_then(|v| v.udata_value())
                        .unwrap_or(0);
                    let Some(kind) = kind_of(c) else { continue };
                    let size = size(u, kind, 0).unwrap_or(1);
                    if at <= offset && offset - at < size.max(1) && best.as_ref().is_none_or(|b| at > b.0) {
                        best = Some((at, self.text(u, c.attr(dw::DW_AT_name)), kind));
                    }
                }
                let (at, name, kind) = best?;
                let (inner, kind) = self.member(u, kind, offset - at, depth + 1)?;
                let own = if name.is_empty() { String::new() } else { format!(".{name}") };
                Some((own + &inner, kind))
            }
            dw::DW_TAG_array_type => {
                let element = kind_of(&e)?;
                let each = size(u, element, 0)?.max(1);
                let (inner, kind) = self.member(u, element, offset % each, depth + 1)?;
                Some((format!("[{}]{inner}", offset / each), kind))
            }
            _ => here,
        }
    }
}

fn kind_of(e: &Entry) -> Option<UnitOffset> {
    match e.attr_value(dw::DW_AT_type)? {
        AttributeValue::UnitRef(offset) => Some(offset),
        _ => None,
    }
}

/// The type behind names and qualifiers.
fn plain(u: &Unit<R>, kind: UnitOffset, depth: u32) -> Option<UnitOffset> {
    let e = u.entry(kind).ok()?;
    match e.tag() {
        dw::DW_TAG_typedef
        | dw::DW_TAG_const_type
        | dw::DW_TAG_volatile_type
        | dw::DW_TAG_restrict_type
        | dw::DW_TAG_atomic_type
            if depth < DEEP =>
        {
            plain(u, kind_of(&e)?, depth + 1)
        }
        _ => Some(kind),
    }
}

/// Bytes of a type.
fn size(u: &Unit<R>, kind: UnitOffset, depth: u32) -> Option<u64> {
    let e = u.entry(plain(u, kind, 0)?).ok()?;
    if let Some(size) = e.attr_value(dw::DW_AT_byte_size).and_then(|v| v.udata_value()) {
        return Some(size);
    }
    match e.tag() {
        dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type => Some(8),
        dw::DW_TAG_array_type if depth < DEEP => {
            let each = size(u, kind_of(&e)?, depth + 1)?;
            let mut tree = u.entries_tree(Some(e.offset())).ok()?;
            let mut children = tree.root().ok()?.children();
            let mut all = each;
            while let Ok(Some(child)) = children.next() {
                let value = |name| child.entry().attr_value(name).and_then(|v| v.udata_value());
                let n = value(dw::DW_AT_count)
                    .or_else(|| value(dw::DW_AT_upper_bound).map(|n| n.saturating_add(1)));
                all = all.saturating_mul(n?);
            }
            Some(all)
        }
        _ => None,
    }
}
