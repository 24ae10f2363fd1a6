//! Boundary waits that were judged in one thread, for the programs to know them again in others (`bpf/shape.h`).

use super::layout::{LINKS, Link, SHAPES, Shape, ShapeKey, VARIANTS};
use crate::stacks::{Regs, UserFrame};
use std::collections::HashMap;

/// Those that the programs have, by image and place.
#[derive(Default)]
pub struct Shapes {
    known: HashMap<(u64, u64), Variants>,
    count: usize,
}

#[derive(Default)]
struct Variants {
    all: Vec<Shape>,
    /// Which is replaced next.
    oldest: usize,
}

impl Shapes {
    /// Where the programs are to find it; those to be forgotten first.
    pub fn add(&mut self, image: u64, ip: u64, shape: &Shape) -> (ShapeKey, Vec<ShapeKey>) {
        let mut gone = Vec::new();
        if self.count >= SHAPES && !self.known.get(&(image, ip)).is_some_and(|v| v.all.contains(shape)) {
            // Programs came and went: those that are there still are asked about again.
            let keys = |(&(image, ip), v): (&(u64, u64), &Variants)| {
                (0..v.all.len()).map(move |i| key(image, ip, i)).collect::<Vec<_>>()
            };
            gone = self.known.iter().flat_map(keys).collect();
            *self = Self::default();
        }
        let of = self.known.entry((image, ip)).or_default();
        let place = of.all.iter().position(|s| s == shape).unwrap_or_else(|| {
            if of.all.len() < VARIANTS {
                self.count += 1;
                of.all.push(*shape);
                return of.all.len() - 1;
            }
            let place = of.oldest;
            of.oldest = (place + 1) % VARIANTS;
            of.all[place] = *shape;
            place
        });
        (key(image, ip, place), gone)
    }
}

fn key(image: u64, ip: u64, variant: usize) -> ShapeKey {
    ShapeKey { image, ip, variant: variant as u32, zero: 0 }
}

/// The boundary wait with this stack, and what its call returns to: the place of each, and what is to be there above the
/// stack pointer. `frame` is that of the loop, `turn` the one that made the call a probe may stand behind. None where
/// the return addresses are not all in `copy`, the bytes from the stack pointer upward.
pub fn of(
    of_loop: usize,
    regs: &Regs,
    frames: &[UserFrame],
    copy: &[u8],
    (frame, turn): (usize, usize),
) -> Option<[(u64, Shape); 2]> {
    let above = |sp: u64| u32::try_from(sp.checked_sub(regs.sp)?).ok();
    // Where frame `i` goes on, at which stack pointer: what its callee returns to.
    let place = |i: usize| match i {
        0 => Some((regs.ip, 0)),
        i => Some((frames.get(i)?.address.wrapping_add(1), above(frames.get(i)?.regs.sp()?)?)),
    };
    let mut links = Vec::new();
    for i in 1..=frame {
        let (address, sp) = place(i)?;
        let at = sp.checked_sub(8)?;
        let there = copy.get(at as usize..at as usize + 8)?;
        if there != address.to_le_bytes() {
            return None;
        }
        links.push(Link { address, at, zero: 0 });
    }
    let shape = |from: usize| {
        let (ip, base) = place(from)?;
        let mut all = [Link::default(); LINKS];
        let links = links.get(from..)?;
        for (to, link) in all.get_mut(..links.len())?.iter_mut().zip(links) {
            *to = Link { at: link.at.checked_sub(base)?, ..*link };
        }
        let below = |i: usize| place(i)?.1.checked_sub(base);
        let (of_loop, count) = (of_loop as u32, links.len() as u32);
        Some((ip, Shape { of_loop, count, frame: below(frame)?, turn: below(turn)?, links: all }))
    };
    Some([shape(0)?, shape(turn)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::FrameRegs;
    use pg_event::FrameId;

    /// A wait at 100 that 200 called, which 300 called, at these stack pointers.
    fn stack(sps: [u64; 3]) -> (Regs, Vec<UserFrame>, Vec<u8>) {
        let regs = Regs { ip: 100, sp: sps[0], ..Regs::default() };
        let mut copy = vec![0; 256];
        let frame = |(i, sp): (usize, u64)| {
            let ip = (i as u64 + 1) * 100;
            let regs = FrameRegs::from(&Regs { ip, sp, ..Regs::default() });
            UserFrame { address: if i == 0 { ip } else { ip - 1 }, frame: FrameId(0), regs }
        };
        let frames: Vec<_> = sps.into_iter().enumerate().map(frame).collect();
        for (i, sp) in sps.into_iter().enumerate().skip(1) {
            let at = (sp - 8 - sps[0]) as usize;
            copy[at..at + 8].copy_from_slice(&((i as u64 + 1) * 100).to_le_bytes());
        }
        (regs, frames, copy)
    }

    fn links(of: &[(u64, u32)]) -> [Link; LINKS] {
        let mut all = [Link::default(); LINKS];
        for (to, &(address, at)) in all.iter_mut().zip(of) {
            *to = Link { address, at, zero: 0 };
        }
        all
    }

    #[test]
    fn a_wait_and_what_it_returns_to_count_from_their_own_stack_pointers() {
        let (regs, frames, copy) = stack([0x1000, 0x1020, 0x1050]);
        let of = |depth, turn| super::of(3, &regs, &frames, &copy, (depth, turn));
        let wait = Shape {
            of_loop: 3,
            count: 2,
            frame: 0x50,
            turn: 0x20,
            links: links(&[(200, 0x18), (300, 0x48)]),
        };
        let turn = Shape { of_loop: 3, count: 1, frame: 0x30, turn: 0, links: links(&[(300, 0x28)]) };
        assert_eq!(of(2, 1), Some([(100, wait), (200, turn)]));
        // The loop itself calls; the loop itself waits.
        let turn = Shape { of_loop: 3, count: 0, frame: 0, turn: 0, links: links(&[]) };
        assert_eq!(of(1, 1).map(|s| s[1]), Some((200, turn)));
        assert_eq!(of(0, 0), Some([(100, turn), (100, turn)]));
        // No such frame; another return address than was unwound to, or none in the copy.
        assert_eq!(of(3, 1), None);
        assert_eq!(super::of(3, &regs, &frames, &vec![0; 256], (2, 1)), None);
        assert_eq!(super::of(3, &regs, &frames, &copy[..0x4f], (2, 1)), None);
        let (regs, frames, copy) = stack([0x1000, 0x1020, 0x1050]);
        let elsewhere = Regs { sp: 0x9000, ..regs };
        assert_eq!(super::of(3, &elsewhere, &frames, &copy, (2, 1)), None);
    }

    #[test]
    fn so_many_stacks_of_a_place_are_known_and_so_many_in_all() {
        let shape = |frame| Shape { of_loop: 0, count: 0, frame, turn: 0, links: links(&[]) };
        let mut shapes = Shapes::default();
        let places: Vec<u32> = [1, 2, 1, 3, 4, 5, 6].map(|f| shapes.add(7, 9, &shape(f)).0.variant).into();
        assert_eq!(places, [0, 1, 0, 2, 3, 0, 1]);
        assert!((VARIANTS..SHAPES).all(|i| shapes.add(8, i as u64, &shape(1)).1.is_empty()));
        assert_eq!(shapes.add(7, 9, &shape(6)), (key(7, 9, 1), Vec::new()), "known");
        let (_, gone) = shapes.add(8, 0, &shape(1));
        assert_eq!(gone.len(), SHAPES);
        assert!(shapes.add(8, 1, &shape(1)).1.is_empty());
    }
}
