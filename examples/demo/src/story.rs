//! The order of the scenes.

use crate::database;
use crate::error::DemoError;
use crate::events::EventsFile;
use crate::narrate::{Narrator, counted};
use crate::scenes;
use crate::settings::Settings;
use crate::stage::Stage;

type Scene = (&'static str, fn(&mut Stage) -> Result<(), DemoError>);

const SCENES: [Scene; 11] = [
    ("An order and its event, in one commit", scenes::order::play),
    ("A rolled-back order leaves no event", scenes::rollback::play),
    ("The same event twice is one event", scenes::duplicate::play),
    ("The same key for something else is an error", scenes::conflict::play),
    ("The events of the file", scenes::file::play),
    ("Two workers side by side", scenes::workers::play),
    ("A worker that is too late", scenes::lost_lease::play),
    ("A worker that was restarted under its old name", scenes::fencing::play),
    ("A failure and its retry", scenes::retry::play),
    ("Events that die", scenes::dead::play),
    ("What is in the table now", scenes::closing::play),
];

pub fn tell(narrator: Narrator, settings: &Settings, file: EventsFile) -> Result<(), DemoError> {
    let mut stage = Stage::set(narrator, &settings.server, file)?;
    narrator.title(&format!("The story of an outbox, told on {}", database::versions(&mut stage.shop)?));
    narrator.plain(&format!(
        "{} from {}; the database {} was made afresh.",
        counted(stage.file.events.len(), "event"),
        stage.file.path.display(),
        database::NAME
    ));
    for (number, (title, play)) in (1..).zip(SCENES) {
        narrator.heading(number, title);
        play(&mut stage).map_err(|error| error.in_step(number, title))?;
    }
    farewell(narrator, settings);
    Ok(())
}

fn farewell(narrator: Narrator, settings: &Settings) {
    narrator.gap();
    narrator.title("Every step came out as told. The server is still running.");
    narrator.plain("Look around in it:");
    narrator.sql(&settings.psql_command());
    narrator.plain("and try");
    for statement in scenes::closing::WORTH_TRYING {
        narrator.sql(statement);
    }
    if let Some(stop) = &settings.stop {
        narrator.plain("Stop it with");
        narrator.sql(stop);
    }
}
