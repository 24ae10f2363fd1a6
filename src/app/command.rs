//! The command table: the one source of key names, footer hints, help, which-key and palette.

pub use super::context::Context;
use super::state::View;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// What runs.
    pub cmd: Cmd,
    /// Its name in keymap and palette.
    pub name: &'static str,
    /// A word for the footer; empty: not shown there.
    pub hint: &'static str,
    /// One sentence.
    pub doc: &'static str,
    /// Where it means something.
    pub contexts: &'static [Context],
}

impl Command {
    /// Does it mean something here?
    pub fn applies(&self, context: Context) -> bool {
        self.contexts.contains(&context)
            || match context {
                Context::Text => false,
                // There is no recording to search, to note on, or to go about in.
                Context::Live if self.contexts.contains(&Context::Global) => {
                    matches!(
                        self.cmd,
                        Cmd::NextTheme | Cmd::Redraw | Cmd::Suspend | Cmd::Help | Cmd::Cancel | Cmd::Quit
                    )
                }
                _ => self.contexts.contains(&Context::Global) || self.contexts.contains(&Context::List),
            }
    }
}

macro_rules! commands {
    ($($variant:ident $name:literal $hint:literal [$($context:ident)+] $doc:literal)+) => {
        /// Everything a person can make happen, by name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Cmd { $(#[doc = $doc] $variant,)+ }

        /// The table, in the order of footer and help.
        pub const COMMANDS: &[Command] = &[$(Command {
            cmd: Cmd::$variant, name: $name, hint: $hint, doc: $doc, contexts: &[$(Context::$context),+],
        },)+];
    };
}

commands! {
    Diagnose "diagnose" "diagnose" [Victims] "Find what caused the selected victim: follow its wait backwards."
    SortVictims "sort-victims" "sort" [Victims] "Order the victims by rank, by time, by length or by thread."
    AllVictims "all-victims" "all/focus" [Victims] "Show victims of every process, or of the focus only."

    DiagnoseUnit "diagnose-unit" "diagnose" [Violations Units] "Find what made the selected unit slow, with a normal unit of its type as the baseline."
    CompareUnits "compare-units" "compare" [Violations] "Show the selected unit and a normal one of its type side by side."
    AdjustGuard "adjust-guard" "adjust" [Violations Units] "Set how long units of this type may take; the session keeps it."
    SilenceGuard "silence-guard" "silence" [Violations Units] "Let units of this type take as long as they want, or count again; the session keeps it."
    DiagnoseTransaction "diagnose-transaction" "transaction" [Violations Units] "Find what made the whole transaction slow: in which of its units, or waits between them, most time went, and why."
    SortViolations "sort-violations" "sort" [Violations] "Order the slow units by excess, by time, by type, or by how long they were queued."
    SeeHander "see-hander" "handed on by" [Violations Units] "Show the unit that handed the selected one on in the timeline."

    Choose1 "choose-1" "" [Question] "Choose the first option."
    Choose2 "choose-2" "" [Question] "Choose the second option."
    Choose3 "choose-3" "" [Question] "Choose the third option."
    Choose4 "choose-4" "" [Question] "Choose the fourth option."
    Choose5 "choose-5" "" [Question] "Choose the fifth option."
    Choose6 "choose-6" "" [Question] "Choose the sixth option."
    Choose7 "choose-7" "" [Question] "Choose the seventh option."
    Choose8 "choose-8" "" [Question] "Choose the eighth option."
    Choose9 "choose-9" "" [Question] "Choose the ninth option."
    ChooseStop "stop-here" "stop here" [Question] "Stop here: the vertex asked about is the cause."
    ChooseRow "choose" "take marked" [Question] "Choose the marked option (the recommended one at first)."
    Recommended "take-recommended" "recommended" [Question] "Take the recommended answer."
    FinishByPolicy "take-all-recommended" "all recommended" [Question Slice] "Take the recommended answer of this and of every later question."
    See "see" "see in timeline" [Victims Question Slice Vertex Path Notes Violations Units] "Show the selected thing in the timeline."

    FollowEdge "follow" "follow" [Slice Path] "Open the vertex of the selected step."
    Branch "branch" "branch" [Slice] "Go back to the question behind the selected step and answer it differently."
    Resume "next-question" "go on" [Slice] "Go on with the diagnosis: its next question, or the verdict."
    OpenVertex "open" "open" [Timeline Vertex Notes Units] "Open what is under the cursor."

    StepOn "step" "step" [Steps] "To the next instruction."
    StepBack "step-back" "" [Steps] "To the instruction before."
    NextCall "next-call" "call" [Steps] "To the next call."
    PreviousCall "previous-call" "" [Steps] "To the call before."
    NextReturn "next-return" "return" [Steps] "To the next return."
    PreviousReturn "previous-return" "" [Steps] "To the return before."
    FoldSteps "fold" "fold" [Steps] "Fold or open the selected call or loop."

    Expand "toggle" "fold" [Threads] "Open or fold the selected process."
    ShowThread "show-thread" "see in timeline" [Threads] "Show the selected thread or process in the timeline."
    SortThreads "sort-threads" "sort" [Threads] "Order the processes by tree, on-CPU time, runnable time, blocked time or name."

    ZoomIn "zoom-in" "zoom" [Timeline] "See half the time, twice as exactly, around the cursor."
    ZoomOut "zoom-out" "" [Timeline] "See twice the time."
    ZoomAll "zoom-all" "all" [Timeline] "See the whole recording."
    ZoomSelection "zoom-selection" "fit" [Timeline] "Fit the marked span, or the vertex under the cursor."
    PanLeft "pan-left" "" [Timeline] "Move a quarter screen back in time."
    PanRight "pan-right" "" [Timeline] "Move a quarter screen on in time."
    NextChange "next-change" "next" [Timeline] "To the next vertex of this thread."
    PreviousChange "previous-change" "" [Timeline] "To the previous vertex of this thread."
    FollowWaker "follow-waker" "waker" [Timeline Vertex] "Jump to what woke the vertex under the cursor."
    FollowWakee "follow-wakee" "wakee" [Timeline Vertex] "Jump to the first vertex that this one woke."
    MarkSpan "mark-span" "mark span" [Timeline] "Begin or end a marked span at the cursor."
    CriticalPath "critical-path" "what made it" [Timeline Vertex Victims] "What made the marked span take so long: its bounded critical path. Without a mark, of the vertex, or of all waits of a loop that it is one of."
    DiagnoseHere "diagnose-here" "diagnose" [Timeline Vertex] "Diagnose the vertex under the cursor as the victim."
    OnlyRelated "only-related" "related" [Timeline] "Show only the threads of the slice and the selection, or all threads."

    RecordThis "record" "record it" [Live] "Record the process of the selected thread, and diagnose what hangs in it."
    LiveFilter "live-filter" "filter" [Live] "Show only threads that have what is typed in their name, id, command line, state or wait; esc shows the others again."
    LiveAll "live-all" "all/waiting" [Live] "Show every thread, or only those that wait for something or run."
    LivePause "live-pause" "pause" [Live] "Stop looking for a while, or go on."

    CopyVerdict "copy" "copy" [Global] "Copy this view as Markdown, ready for a ticket."
    Export "export" "export" [Verdict] "Write the report as JSON and Markdown files beside the session."
    Save "save" "save" [Verdict Slice Question] "Keep the decisions so far in the session file."
    WhyNot "why-not" "why not others" [Verdict] "Why the other candidates are not named as the cause."
    ShowSlice "show-slice" "slice" [Verdict] "Show the slice that leads to the verdict."
    FindFlag "find-flag" "" [Question Verdict] "Find the variable that the loop asks, by following the thread for a moment, if it still runs."
    FollowSteps "follow-steps" "" [Vertex Question Verdict] "Follow the thread instruction by instruction for 20 ms, if it still runs, and show what it executes."

    Undo "undo" "undo" [Global] "Take back the last answer; among notes, bring back the last one deleted."
    GoTimeline "timeline" "timeline" [Global] "Threads over time."
    GoThreads "threads" "threads" [Global] "Processes and threads with their shares of time."
    GoVictims "victims" "victims" [Global] "What hung: the suspicious vertices."
    GoViolations "violations" "violations" [Global] "Units of work that took too long, as a guard saw them."
    GoSlice "slice" "" [Global] "The backward path of the diagnosis."
    GoQuestion "question" "" [Global] "The open question of the diagnosis."
    GoVerdict "verdict" "" [Global] "The root cause in words."
    GoSteps "steps" "" [Global] "What threads executed, instruction by instruction: again, the next burst."
    GoNotes "notes" "" [Global] "Bookmarks and notes."
    GoLog "log" "" [Global] "What happened in this session, what was lost and when, and what there is to remark about the recording."
    Search "find" "find" [Global] "Find a process, thread, function or file."
    NextFound "next-found" "" [Global] "The next thing found."
    PreviousFound "previous-found" "" [Global] "The previous thing found."
    Palette "command" "command" [Global] "Find a command by its name, what it does, or its key; `goto 2.5 s` or `goto 09:10:13` (UTC) shows that time in the timeline."
    Back "back" "" [Global] "Back to where you were before."
    Forward "forward" "" [Global] "Forward again."
    Bookmark "bookmark" "" [Global] "Set or clear a bookmark on the selected event or vertex."
    Note "note" "" [Global] "Write a note on the selected event or vertex; it is kept in the session."
    DeleteNote "delete-note" "delete" [Notes] "Delete the selected bookmark or note."
    NextTheme "theme" "" [Global] "Change between the dark, light, 16-colour and colourless themes."
    Redraw "redraw" "" [Global] "Draw the screen afresh."
    Suspend "suspend" "" [Global] "Stop pg-tui and go back to the shell; `fg` brings it back."
    Help "help" "help" [Global] "All keys and what they do."
    Cancel "cancel" "" [Global] "Close what is open, clear a mark, or go back."
    Write "write" "" [Global] "Write the report of the verdict beside the session; notes and decisions are kept there by themselves."
    Quit "quit" "quit" [Global] "Leave pg-tui. Notes and decisions are kept in the session."

    Up "up" "" [List] "Up."
    Down "down" "" [List] "Down."
    Left "left" "" [List] "Left, or fold."
    Right "right" "" [List] "Right, or open."
    PageUp "page-up" "" [List] "A page up."
    PageDown "page-down" "" [List] "A page down."
    First "first" "" [List] "To the beginning."
    Last "last" "" [List] "To the end."

    Accept "accept" "choose" [Text] "Take the selected line."
    CloseText "close" "close" [Text] "Close without doing anything."
    NextRow "next-row" "" [Text] "The next line of the list."
    PreviousRow "previous-row" "" [Text] "The previous line of the list."
    EraseChar "erase" "" [Text] "Erase the character before the cursor."
    EraseWord "erase-word" "" [Text] "Erase the word before the cursor."
    EraseAll "erase-all" "" [Text] "Erase the line."
}

impl Cmd {
    /// Its row of the table.
    pub fn row(self) -> &'static Command {
        // The macro makes variants and rows in the same order.
        &COMMANDS[self as usize]
    }

    /// By name.
    pub fn from_name(name: &str) -> Option<Self> {
        COMMANDS.iter().find(|c| c.name == name).map(|c| c.cmd)
    }

    /// By a name that it has in editors and debuggers.
    pub fn from_alias(name: &str) -> Option<Self> {
        Some(match name {
            "q" | "q!" | "qa" | "qa!" | "x" | "x!" | "wq" | "wq!" | "exit" => Self::Quit,
            "w" | "w!" => Self::Write,
            "h" => Self::Help,
            _ => return None,
        })
    }

    /// The view it belongs to, when it belongs to exactly one that can be gone to at any time.
    pub fn home(self) -> Option<View> {
        let [context] = self.row().contexts else { return None };
        Some(match context {
            Context::Victims => View::Victims,
            Context::Threads => View::Threads,
            Context::Timeline => View::Timeline,
            Context::Slice => View::Slice,
            Context::Verdict => View::Verdict,
            Context::Notes => View::Notes,
            Context::Violations => View::Violations,
            _ => return None,
        })
    }

    /// The number of a `choose-N`.
    pub fn choice(self) -> Option<usize> {
        let n = (self as usize).checked_sub(Self::Choose1 as usize)? + 1;
        (n <= 9).then_some(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_and_variants_agree_and_names_are_unique() {
        let mut names = HashSet::new();
        for (i, c) in COMMANDS.iter().enumerate() {
            assert_eq!(c.cmd as usize, i);
            assert_eq!(c.cmd.row().name, c.name);
            assert_eq!(Cmd::from_name(c.name), Some(c.cmd));
            assert!(names.insert(c.name), "two commands are called {}", c.name);
            assert!(c.doc.ends_with('.') && !c.contexts.is_empty(), "{}", c.name);
        }
        assert_eq!(Cmd::Choose7.choice(), Some(7));
        assert_eq!(Cmd::ChooseStop.choice(), None);
        assert_eq!(Cmd::Diagnose.choice(), None);
    }
}
