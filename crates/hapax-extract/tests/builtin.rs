//! Tests of the mentions and relations that the built-in extractor finds, and those that it leaves
//! alone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hapax_extract::{Builtin, ChunkGraph, ChunkRequest, Extractor, Ontology, Params, Property};
use serde_json::json;

fn ontology() -> Ontology {
    serde_json::from_value(json!({
        "classes": [
            {"id": "Place", "label": "place"},
            {"id": "River", "label": "River", "synonyms": ["stream"], "subClassOf": ["Place"]},
            {"id": "City", "label": "city", "subClassOf": ["Place"]},
            {"id": "Person", "label": "person"},
            {"id": "Professor", "subClassOf": ["Person"]},
            {"id": "NGO", "label": "NGO"},
            {"id": "Book", "label": "book"},
        ],
        "properties": [
            {"id": "flowsThrough", "domain": ["River"], "range": ["Place"]},
            {"id": "wrote", "label": "wrote", "domain": ["Person"], "range": ["Book"]},
            {"id": "foundedBy", "label": "founded by", "domain": ["City"], "range": ["Person"]},
            {"id": "capital", "label": "has capital", "domain": ["Place"], "range": ["City"]},
            {"id": "knows", "label": "know", "domain": ["Person"], "range": ["Person"]},
            {"id": "liesIn", "label": "is in", "domain": ["Place"], "range": ["Place"]},
        ],
        "individuals": [
            {"id": "thames", "label": "Thames", "type": ["Place", "River"]},
            {"id": "london", "label": "London", "type": ["City"]},
            {"id": "bath", "label": "Bath", "type": ["City"]},
            {"id": "oxford", "label": "Oxford", "type": ["City"]},
            {"id": "york", "label": "York", "type": ["City"]},
            {"id": "newyork", "label": "New York", "synonyms": ["NYC", "Big Apple"], "type": ["City"]},
            {"id": "who", "label": "WHO", "type": ["NGO"]},
            {"id": "zurich", "label": "Zürich", "type": ["City"]},
            {"id": "beijing", "label": "北京", "type": ["City"]},
            {"id": "england", "label": "England", "type": ["Place"]},
            {"id": "ada", "label": "Ada Lovelace", "type": ["Person"]},
            {"id": "emma", "label": "Emma", "type": ["Book"]},
            {"id": "ivanhoe", "label": "Ivanhoe", "type": ["Book"]},
        ],
    }))
    .expect("an ontology")
}

fn find(text: &str) -> ChunkGraph {
    let ontology = ontology();
    let builtin = Builtin::new();
    let mentions = builtin.mentions(&ontology, text).expect("mentions");
    let properties: Vec<&Property> = ontology.properties.iter().collect();
    let statements =
        builtin.statements(&ontology, text, &mentions, &properties).expect("relations");
    ChunkGraph { mentions, statements }
}

/// Every mention as `written = class/name`, or `written = individual`.
fn mentions(text: &str) -> Vec<String> {
    let found = find(text).mentions.into_iter().map(|mention| {
        let meant = mention.individual.unwrap_or(format!("{}/{}", mention.class, mention.name));
        format!("{} = {meant}", &text[mention.start..mention.end])
    });
    found.collect()
}

/// Every relation as `subject property object`.
fn relations_in(text: &str) -> Vec<String> {
    let found = find(text);
    let name = |at: usize| &found.mentions[at].name;
    let relations = found.statements.iter().map(|statement| {
        format!("{} {} {}", name(statement.subject), statement.property, name(statement.object))
    });
    relations.collect()
}

const NOTHING: [&str; 0] = [];

/// Proves X-9.
#[test]
fn an_individual_is_found_by_its_label_and_its_synonyms() {
    assert_eq!(mentions("From London to NYC."), ["London = london", "NYC = newyork"]);
    assert_eq!(mentions("the big apple"), ["big apple = newyork"]);
}

/// Proves X-9.
#[test]
fn a_class_is_found_by_its_label_and_its_synonyms_as_something_without_a_name() {
    assert_eq!(mentions("a river and a stream"), ["river = River/River", "stream = River/River"]);
    assert_eq!(mentions("Professor"), ["Professor = Professor/Professor"]);
}

#[test]
fn the_longest_name_at_a_place_wins() {
    assert_eq!(mentions("in New York"), ["New York = newyork"]);
    assert_eq!(mentions("in York"), ["York = york"]);
}

#[test]
fn a_name_matches_only_at_word_borders() {
    assert_eq!(mentions("Londoners, Yorkshire, capacity, Bath3"), NOTHING);
    assert_eq!(mentions("(London) London's"), ["London = london"; 2]);
    assert_eq!(mentions("Zürichsee, Zürich\u{301}"), NOTHING);
}

#[test]
fn case_does_not_matter_in_other_scripts_either() {
    assert_eq!(mentions("ZÜRICH"), ["ZÜRICH = zurich"]);
    assert_eq!(mentions("我在北京工作"), ["北京 = beijing"]);
}

#[test]
fn an_acronym_matches_exactly() {
    assert_eq!(mentions("the WHO, and who else? nyc"), ["WHO = who"]);
    assert_eq!(mentions("an NGO, two NGOs, an ngo"), ["NGO = NGO/NGO", "NGOs = NGO/NGO"]);
}

#[test]
fn a_name_of_one_word_needs_its_capital_and_a_longer_one_does_not() {
    assert_eq!(mentions("a bath in Bath in BATH"), ["Bath = bath", "BATH = bath"]);
    assert_eq!(mentions("ada lovelace"), ["ada lovelace = ada"]);
}

#[test]
fn a_class_is_found_in_the_plural() {
    assert_eq!(mentions("cities, rivers"), ["cities = City/city", "rivers = River/River"]);
}

#[test]
fn a_capitalised_name_beside_a_class_is_a_thing_of_that_class() {
    assert_eq!(mentions("The River Avon rose."), ["River Avon = River/Avon"]);
    assert_eq!(mentions("The Hudson River rose."), ["Hudson River = River/Hudson"]);
    assert_eq!(mentions("the river Po"), ["river Po = River/Po"]);
    assert_eq!(mentions("along the Neva river"), ["Neva river = River/Neva"]);
    let found = mentions("Professor Grace M. Hopper spoke");
    assert_eq!(found, ["Professor Grace M. Hopper = Professor/Grace M. Hopper"]);
}

#[test]
fn not_every_capital_beside_a_class_is_a_name() {
    assert_eq!(mentions("Old city walls."), ["city = City/city"]);
    assert_eq!(mentions("the French city"), ["city = City/city"]);
    assert_eq!(mentions("Every River"), ["River = River/River"]);
    assert_eq!(mentions("two rivers Rhine"), ["rivers = River/River"]);
    assert_eq!(mentions("in the city. Paul left"), ["city = City/city"]);
}

#[test]
fn an_individual_beside_its_class_is_one_mention() {
    assert_eq!(mentions("the River Thames"), ["River Thames = thames"]);
    assert_eq!(mentions("the Thames River"), ["Thames River = thames"]);
    assert_eq!(mentions("the city of London"), ["city of London = london"]);
    assert_eq!(
        mentions("a professor of London"),
        ["professor = Professor/Professor", "London = london"]
    );
}

#[test]
fn an_ambiguous_name_is_read_the_same_way_whatever_the_order() {
    let mut ontology = ontology();
    ontology.individuals.push(
        serde_json::from_value(json!({
            "id": "aaa", "label": "London", "type": ["Person"]
        }))
        .expect("an individual"),
    );
    let one = Builtin::new().mentions(&ontology, "London").expect("mentions");
    ontology.individuals.reverse();
    ontology.classes.reverse();
    ontology.properties.reverse();
    let other = Builtin::new().mentions(&ontology, "London").expect("mentions");
    assert_eq!(one, other);
    assert_eq!(one[0].individual.as_deref(), Some("aaa"));
}

/// Proves X-9.
#[test]
fn a_verb_between_two_fitting_mentions_is_a_relation() {
    assert_eq!(relations_in("The Thames flows through London."), ["Thames flowsThrough London"]);
    assert_eq!(relations_in("The Thames flowed through Oxford."), ["Thames flowsThrough Oxford"]);
    assert_eq!(relations_in("The Thames, flowing through Bath"), ["Thames flowsThrough Bath"]);
    assert_eq!(relations_in("Ada Lovelace writes Emma"), ["Ada Lovelace wrote Emma"]);
}

#[test]
fn no_relation_where_domain_or_range_do_not_fit() {
    assert_eq!(relations_in("London flows through the Thames."), NOTHING);
    assert_eq!(relations_in("The Thames flows through Ada Lovelace."), NOTHING);
}

#[test]
fn the_nearest_that_fits_is_taken() {
    assert_eq!(
        relations_in("The Thames passes Oxford and flows through London."),
        ["Thames flowsThrough London"]
    );
    assert_eq!(
        relations_in("The Thames flows through, as Ada Lovelace said, London, near Bath"),
        ["Thames flowsThrough London"]
    );
}

#[test]
fn words_after_the_next_verb_belong_to_that_verb() {
    assert_eq!(
        relations_in("The Thames flows through meadows and is in England."),
        ["Thames liesIn England"]
    );
}

#[test]
fn something_with_a_name_goes_before_its_class() {
    assert_eq!(
        relations_in("The Thames is a river that flows through London."),
        ["Thames flowsThrough London"]
    );
    assert_eq!(relations_in("The river flows through London."), ["River flowsThrough London"]);
}

#[test]
fn a_relation_stays_within_its_sentence() {
    assert_eq!(relations_in("I saw the Thames. It flows through London."), NOTHING);
    assert_eq!(relations_in("I saw the Thames\nflows through London."), NOTHING);
}

#[test]
fn the_passive_turns_a_relation_round() {
    assert_eq!(relations_in("Emma was written by Ada Lovelace."), ["Ada Lovelace wrote Emma"]);
    assert_eq!(relations_in("Emma, written by Ada Lovelace"), ["Ada Lovelace wrote Emma"]);
    assert_eq!(
        relations_in("Emma was written in 1815 by Ada Lovelace."),
        ["Ada Lovelace wrote Emma"]
    );
    assert_eq!(
        relations_in("London was founded by Ada Lovelace."),
        ["London foundedBy Ada Lovelace"]
    );
    assert_eq!(relations_in("Ada Lovelace founded London."), ["London foundedBy Ada Lovelace"]);
    assert_eq!(relations_in("Ada Lovelace was written before Emma."), NOTHING);
}

#[test]
fn a_noun_with_of_turns_a_relation_round() {
    assert_eq!(relations_in("London is the capital of England."), ["England capital London"]);
    assert_eq!(relations_in("England has its capital London"), ["England capital London"]);
}

#[test]
fn a_preposition_is_a_pattern_only_with_its_verb() {
    assert_eq!(relations_in("London was in England."), ["London liesIn England"]);
    assert_eq!(relations_in("London, loved in England."), NOTHING);
}

#[test]
fn a_denied_relation_is_not_extracted() {
    assert_eq!(relations_in("The Thames does not flow through Bath."), NOTHING);
    assert_eq!(relations_in("The Thames doesn't flow through Bath."), NOTHING);
    assert_eq!(relations_in("The Thames never flowed through Bath."), NOTHING);
}

#[test]
fn each_element_of_a_list_is_related() {
    assert_eq!(
        relations_in("The Thames flows through Oxford, London and Bath."),
        ["Thames flowsThrough Oxford", "Thames flowsThrough London", "Thames flowsThrough Bath"]
    );
    assert_eq!(relations_in("The Thames and the River Avon flow through Bath").len(), 2);
    assert_eq!(relations_in("The Thames flows through Oxford to London.").len(), 1);
}

#[test]
fn nothing_has_to_do_with_itself() {
    assert_eq!(relations_in("Ada Lovelace knows Ada Lovelace."), NOTHING);
}

#[test]
fn a_relation_has_its_place() {
    let text = "So the Thames flows through London, they say.";
    let statement = find(text).statements.remove(0);
    assert_eq!(&text[statement.start..statement.end], "Thames flows through London");
}

#[test]
fn only_requested_properties_are_extracted() {
    let (ontology, text) = (ontology(), "The Thames flows through London.");
    let builtin = Builtin::new();
    let mentions = builtin.mentions(&ontology, text).expect("mentions");
    let others: Vec<&Property> = ontology.properties.iter().skip(1).collect();
    assert!(builtin.statements(&ontology, text, &mentions, &others).expect("relations").is_empty());
}

#[test]
fn mentions_that_are_not_in_the_chunk_do_no_harm() {
    let (ontology, text) = (ontology(), "é Thames flows through London.");
    let builtin = Builtin::new();
    let mut mentions = builtin.mentions(&ontology, text).expect("mentions");
    mentions[0].start = 1;
    mentions[1].end = 1000;
    let all: Vec<&Property> = ontology.properties.iter().collect();
    assert!(builtin.statements(&ontology, text, &mentions, &all).expect("relations").is_empty());
}

#[test]
fn an_empty_ontology_finds_nothing() {
    let builtin = Builtin::new();
    let empty = Ontology::default();
    assert!(builtin.mentions(&empty, "The River Thames").expect("mentions").is_empty());
    let blank = serde_json::from_value(json!({"classes": [{"id": "", "label": " "}]}));
    let blank: Ontology = blank.expect("an ontology");
    assert!(builtin.mentions(&blank, "a b").expect("mentions").is_empty());
}

#[test]
fn a_changed_ontology_is_compiled_again_wherever_it_stands() {
    let builtin = Builtin::new();
    let mut ontology = ontology();
    assert_eq!(builtin.mentions(&ontology, "Lutetia").expect("mentions"), []);
    ontology.individuals[1].synonyms.push("Lutetia".to_owned());
    assert_eq!(builtin.mentions(&ontology, "Lutetia").expect("mentions").len(), 1);
}

#[test]
fn more_ontologies_than_are_kept_still_have_their_answers() {
    let builtin = Builtin::new();
    let named = |number: usize| {
        let mut ontology = ontology();
        ontology.individuals[1].synonyms.push(format!("City{number}"));
        Arc::new(ontology)
    };
    let all: Vec<_> = (0..40).map(named).collect();
    for _ in 0..2 {
        for (number, ontology) in all.iter().enumerate() {
            builtin.learn(ontology).expect("learned");
            let text = format!("City{number} City{}", number + 1);
            assert_eq!(builtin.mentions(ontology, &text).expect("mentions").len(), 1);
        }
    }
}

fn now<T>(mut answer: Pin<Box<dyn Future<Output = T> + Send + '_>>) -> T {
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it has nothing to wait for"),
    }
}

/// Proves X-9.
#[test]
fn the_built_in_extractor_waits_for_nothing_and_costs_nothing() {
    let (ontology, params) = (ontology(), Params::default());
    let text = "The Thames flows through London.";
    let extractor: Arc<dyn Extractor> = Arc::new(Builtin::new());
    assert_eq!(extractor.identity(), "builtin.1");
    assert_eq!(extractor.context(), 0);
    let request = ChunkRequest { chunk: text, context: "", ontology: &ontology, params: &params };
    let entities = now(extractor.entities(request)).expect("mentions");
    assert_eq!(entities.found, find(text).mentions);
    assert_eq!(entities.calls, 0);
    let properties: Vec<&Property> = ontology.properties.iter().collect();
    let relations = now(extractor.relations(request, &entities.found, &properties));
    assert_eq!(relations.expect("relations").found, find(text).statements);
}
