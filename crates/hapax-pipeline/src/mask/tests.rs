//! Masked values, values that stay, and planted places that must not survive.

use hapax::canonical::canonical;
use hapax::guard::places;
use proptest::prelude::*;

use super::*;

const CELL: &str = "8726e2823ffffff";

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

fn masked(text: &str) -> String {
    canonical(&mask(&json(text), 7).json).unwrap()
}

/// Proves P-14: every way to write a place becomes the cell that it lies in.
#[test]
fn every_exact_place_becomes_its_cell() {
    let point = r#"{"cells":["8726e2823ffffff"],"resolution":7,"type":"H3"}"#;
    let geometry = format!(r#"{{"geometry":{point}}}"#);
    let text = format!(r#"{{"g":"[h3:{CELL}]"}}"#);
    let list = format!(r#"{{"coords":["{CELL}"]}}"#);
    let pair = format!(r#"{{"h3":"{CELL}"}}"#);
    for (exact, expected) in [
        (r#"{"geometry":{"type":"Point","coordinates":[-98.12345,38.51234]}}"#, &geometry),
        (r#"{"geometry":{"type":"Point","coordinates":[-98.12345,38.51234,412.5]}}"#, &geometry),
        (
            r#"{"geometry":{"type":"GeometryCollection","geometries":[
                {"type":"MultiPoint","coordinates":[[-98.12345,38.51234]]}]}}"#,
            &geometry,
        ),
        (
            r#"{"geometry":{"type":"Point","bbox":[-98.1,38.5,-98.1,38.5],
                "coordinates":[-98.12345,38.51234]}}"#,
            &geometry,
        ),
        (r#"{"g":"POINT(-98.12345 38.51234)"}"#, &text),
        (r#"{"g":"SRID=4326;point zm (-98.12345 38.51234 1 2)"}"#, &text),
        (r#"{"g":"geo:38.51234,-98.12345;u=35"}"#, &text),
        (r#"{"g":"38.51234, -98.12345"}"#, &text),
        (r#"{"g":"-98.12345;38.51234"}"#, &text),
        (r#"{"coords":[38.51234,-98.12345]}"#, &list),
        (r#"{"coords":[[-98.12345,38.51234]]}"#, &list),
        (r#"{"lat":38.51234,"lon":-98.12345}"#, &pair),
        (r#"{"Longitude":"98.12345 W","Latitude":"38.51234"}"#, &pair),
        (r#"{"lng":-98.12345,"LAT":38.51234}"#, &pair),
        (r#"{"x":-98.12345,"y":38.51234}"#, &pair),
        (r#"{"y":"-98.12345","x":"38.51234"}"#, &pair),
    ] {
        assert_eq!(masked(exact), *expected, "{exact}");
    }
}

/// The example of H3's own documentation.
#[test]
fn cells_are_those_that_everyone_has() {
    assert_eq!(mask_text("37.3615593, -122.0553238", 5), "[h3:85283473fffffff]");
}

#[test]
fn halves_are_paired_by_what_is_around_their_name() {
    let two = r#"{"from_lat":38.51234,"to_lat":10.0,"to_lon":20.0,"from_lon":-98.12345}"#;
    assert_eq!(masked(two), r#"{"from_h3":"8726e2823ffffff","to_h3":"876bac79cffffff"}"#);
    assert_eq!(masked(r#"{"lat1":38.51234,"lon1":-98.12345}"#), r#"{"h3_1":"8726e2823ffffff"}"#);
    let station = r#"{"dec_lat_va":38.51234,"dec_long_va":-98.12345}"#;
    assert_eq!(masked(station), r#"{"dec_h3_va":"8726e2823ffffff"}"#);
    let there = r#"{"h3":"x","lat":38.51234,"lon":-98.12345}"#;
    assert_eq!(masked(there), r#"{"h3":"x","h3_2":"8726e2823ffffff"}"#);
    let columns = r#"{"lat":[38.51234,null],"lon":[-98.12345,1.5]}"#;
    assert_eq!(masked(columns), r#"{"h3":["8726e2823ffffff",null]}"#);
    let rows = r#"{"lat":{"0":38.51234},"lon":{"0":-98.12345}}"#;
    assert_eq!(masked(rows), r#"{"h3":{"0":"8726e2823ffffff"}}"#);
}

/// Proves P-14: a row of a table keeps its columns, and both columns of a place have its cell.
#[test]
fn rows_keep_their_columns() {
    let c = CELL;
    for (exact, expected) in [
        (
            r#"{"columns":["id","lat","lon"],"data":[[7,38.51234,-98.12345]]}"#,
            format!(r#"{{"columns":["id","lat","lon"],"data":[[7,"{c}","{c}"]]}}"#),
        ),
        (
            r#"[["well 7","38.51234",12,"-98.12345",null,0.5]]"#,
            format!(r#"[["well 7","{c}",12,"{c}",null,0.5]]"#),
        ),
        (r#"[5,"98.12345 W",true,"38.51234 N"]"#, format!(r#"[5,"{c}",true,"{c}"]"#)),
        (r#"[5,38.51234,-98.12345,0.1234,6]"#, "[5,null,null,null,6]".to_owned()),
    ] {
        assert_eq!(masked(exact), expected, "{exact}");
    }
}

/// Proves P-14: a latitude and a longitude that objects describe reveal no more than their cell.
#[test]
fn halves_that_are_described_are_paired() {
    for (exact, expected) in [
        (
            r#"{"lat":{"value":38.51234,"unit":"deg"},"lon":{"value":-98.12345,"unit":"deg"}}"#,
            r#"{"h3":{"unit":"deg","value":"8726e2823ffffff"}}"#,
        ),
        (
            r#"{"lat":{"value":38.51234,"of":"N"},"lon":{"value":98.12345,"of":"W"}}"#,
            r#"{"lat":{"of":"N","value":null},"lon":{"of":"W","value":null}}"#,
        ),
        (
            r#"{"lat":{"deg":38,"min":30},"lon":{"deg":98,"min":30}}"#,
            r#"{"lat":{"deg":null,"min":null},"lon":{"deg":null,"min":null}}"#,
        ),
        (r#"{"lat":{"range":[38.51234,38.6]}}"#, r#"{"lat":{"range":[null,null]}}"#),
    ] {
        assert_eq!(masked(exact), expected, "{exact}");
        assert_eq!(masked(expected), expected, "{expected}");
    }
    let fine = spot(38.51234, -98.12345).unwrap().to_cell(Resolution::Twelve);
    let described = format!(r#"{{"h3":{{"value":"{fine}"}}}}"#);
    assert_eq!(masked(&described), r#"{"h3":{"value":"8726e2823ffffff"}}"#);
}

/// Proves P-14: a place that cannot be made coarser is removed.
#[test]
fn a_geometry_that_cannot_be_read_is_removed() {
    for (exact, expected) in [
        (r#"{"lat":38.51234}"#, r#"{"lat":null}"#),
        (r#"{"lat":38.51234,"lon":null}"#, r#"{"lat":null,"lon":null}"#),
        (r#"{"lat":98.51234,"lon":1.5}"#, r#"{"lat":null,"lon":null}"#),
        (r#"{"lat":"38°30'44\" N","lon":"98°"}"#, r#"{"lat":null,"lon":null}"#),
        (r#"{"lat":[38.51234],"lon":[]}"#, r#"{"lat":[null],"lon":[]}"#),
        (r#"{"g":"POINT(-98.12345"}"#, r#"{"g":"[masked]"}"#),
        (r#"{"g":"POINT(-98.12345 here)"}"#, r#"{"g":"[masked]"}"#),
        (r#"{"g":"SRID=3857;POINT(12.5 13.5)"}"#, r#"{"g":"[masked]"}"#),
        (r#"{"g":"1.234 5.678 9.123"}"#, r#"{"g":"[masked]"}"#),
        (
            r#"{"type":"Point","coordinates":[500000.125,4200000.5]}"#,
            r#"{"coordinates":null,"type":"Point"}"#,
        ),
    ] {
        assert_eq!(masked(exact), expected, "{exact}");
    }
}

#[test]
fn the_rest_stays_as_it_is() {
    for text in [
        r#"{"at":"2025-11-13T18:55:44.123456Z","n":0.12345,"parts":[0.5,0.25],"v":"1.234.567"}"#,
        r#"{"cells":["8726e2823ffffff"],"resolution":7,"type":"H3"}"#,
        r#"{"flat":38.51234,"h3":"8526e283fffffff","note":"12.345%, 45.678%","type":"Point"}"#,
    ] {
        assert_eq!(masked(text), text);
    }
    let line = r#"{"name":"creek","geometry":{"type":"LineString","id":7,"properties":{"a":[1,2]},
        "coordinates":[[-98.12345,38.51234],[-98.05,38.52]]}}"#;
    let masked = mask(&json(line), 7);
    let geometry = masked.json.get("geometry").unwrap();
    assert_eq!(geometry.get("id"), json(line).pointer("/geometry/id"));
    assert_eq!(geometry.get("cells").unwrap().as_array().unwrap().len(), masked.cells.len());
    assert!(masked.cells.len() > 2 && masked.cells.contains(CELL));
}

/// Proves P-14: a cell that is too fine becomes its parent.
#[test]
fn finer_cells_become_coarser() {
    let fine = spot(38.51234, -98.12345).unwrap().to_cell(Resolution::Twelve);
    let all = format!(
        r#"{{"h3":"{fine}","site_cells":["{fine}"],"note":"at [h3:{fine}]",
            "g":{{"type":"H3","resolution":12,"cells":["{fine}"]}}}}"#
    );
    let masked = mask(&json(&all), 7);
    let text = print(&masked.json);
    assert_eq!(text.matches(CELL).count(), 4, "{text}");
    assert!(!text.contains(&fine.to_string()) && text.contains(r#""resolution":7"#), "{text}");
    assert_eq!(masked.cells, [CELL.to_owned()].into());
    let number = |cell: CellIndex| Json::object([("h3_index", Json::number(cell.into()))]);
    let coarse = fine.parent(Resolution::Seven).unwrap();
    assert_eq!(mask(&number(fine), 7).json, number(coarse));
}

/// Proves P-14: log lines and the output of programs are masked by the same rules.
#[test]
fn places_in_texts_are_replaced() {
    for (text, expected) in [
        ("at 38.51234, -98.12345.", "at [h3:C]."),
        ("7,\"38.51234\",\"-98.12345\",ok", "7,\"[h3:C]\",ok"),
        ("id\tlat\tlon\n7\t38.51234\t-98.12345\n", "id\tlat\tlon\n7\t[h3:C]\t[h3:C]\n"),
        ("7,38.51234,12,-98.12345", "7,[h3:C],12,[h3:C]"),
        ("bad row: \"38.51234\";x;-98.12345 (line 7)", "bad row: \"[h3:C]\";x;[h3:C] (line 7)"),
        (" 7 | 38.51234 | a | -98.12345\n", " 7 | [h3:C] | a | [h3:C]\n"),
        ("7,38.51234,12,-98.12345,40.12345", "7,[masked],12,[masked],[masked]"),
        ("id,\"Lat (deg)\",n,\"Lon (deg)\"\n7,38.5,0.125,-98.1", HEADED),
        ("a,lat,b,lon,c,d\n1.234,38.51234,2.345,-98.12345,x,3.456", NAMED),
        ("id,lat\n7,38.5\n8,n/a", "id,lat\n7,[masked]\n8,n/a"),
        ("38.51234\n-98.12345\n", "[h3:C]\n"),
        ("x=-98.12345 y=38.51234", "x=[h3:C] y=[h3:C]"),
        ("(38.51234 N / 98.12345 W)", "([h3:C])"),
        ("W98.12345 N38.51234", "[h3:C]"),
        ("+38.51234-098.12345/", "[h3:C]/"),
        ("38°30'44\"N 98°7'24\"W", "[masked] [masked]"),
        ("lat=38.51234 lon=-98.12345 ok", "lat=[h3:C] lon=[h3:C] ok"),
        ("siteLat: 38.5 only", "siteLat: [masked] only"),
        ("bad row {\\\"lon\\\":-98.12345,\\\"lat\\\":38.51234", BAD),
        ("of POINT Z (-98.12345 38.51234 3): bad", "of [h3:C]: bad"),
        ("SRID=4326;POINT(-98.12345 38.51234)|x", "[h3:C]|x"),
        ("cut POLYGON((-98.12345 38.51234, -98.1", "cut [masked]"),
        ("see geo:38.51234,-98.12345;u=3 there", "see [h3:C] there"),
        ("g 0101000020E6100000DD24068195C358C0ED9E3C2CD4424340.", "g [masked]."),
        ("0.5123,38.51234,-98.12345", "[masked]"),
        ("INFO {\"lat\":38.51234,\"lon\":-98.12345} done", "INFO {\"h3\":\"C\"} done"),
        ("a\n{\"coords\":[38.51234,-98.12345]}\nb", "a\n{\"coords\":[\"C\"]}\nb"),
        (
            "[INFO] [got {\"lat\":38.5,\"lon\":-98.1, \"}\":7}] [x",
            "[INFO] [got {\"h3\":\"8726e282effffff\",\"}\":7}] [x",
        ),
        ("[38.51234,\n -98.12345] and", "[[h3:C]] and"),
    ] {
        assert_eq!(mask_text(text, 7), expected.replace('C', CELL), "{text}");
    }
    for text in [
        "",
        "loss 0.12345 after 3.1 s",
        "real 0.123s, user 0.456s",
        "18:55:44.123 18:55:45.456 10.168.100.200",
        "{\"loss\": 0.12345, \"steps\": [1, 2]}\n",
        "point (of view)",
        "took too long: 5.2s",
        "1234.5678, 2345.6789",
        "a 0.12345, b, c 0.23456",
        "7,0.12345,x,1234.56789",
        "x=0.12345 after y 7, x=3.5 y=4.5",
        "loss 0.12345\nacc 0.23456\n",
    ] {
        assert_eq!(mask_text(text, 7), text);
    }
}

#[test]
fn no_text_is_too_deep_or_too_long() {
    let deep = |kind: &str, by: usize| format!("{}1 2{}", kind.repeat(by), ")".repeat(by));
    assert_eq!(mask_text(&format!("POLYGON{}", deep("(", 100_000)), 7), "[masked]");
    assert_eq!(mask_text(&deep("GEOMETRYCOLLECTION(", 20_000), 7), "[masked]");
    for part in
        ["[", "}[", "{\"", "[{", "POINT(:", "lat=", "1.234,", "geo:", "{\"a\":", "lat,", "1.234\n"]
    {
        mask_text(&part.repeat(200_000), 7);
    }
}

const BAD: &str = "bad row {\\\"lon\\\":[h3:C],\\\"lat\\\":[h3:C]";

const HEADED: &str =
    "id,\"Lat (deg)\",n,\"Lon (deg)\"\n7,[h3:8726e282effffff],0.125,[h3:8726e282effffff]";

const NAMED: &str = "a,lat,b,lon,c,d\n1.234,[h3:C],2.345,[h3:C],x,3.456";

fn print(json: &Json) -> String {
    canonical(json).unwrap()
}

/// Two places near each other, written with four decimals and more.
fn planted() -> impl Strategy<Value = [(String, String); 2]> {
    let digits = || (1000_u32..10_000, 0_u32..1000).prop_map(|(a, b)| format!("{a}{b:03}7"));
    let near = (digits(), digits(), digits(), digits());
    (-89..89, -179..179, near).prop_map(|(lat, lon, (a, b, c, d))| {
        let place = |a: String, b: String| (format!("{lat}.{a}"), format!("{lon}.{b}"));
        [place(a, b), place(c, d)]
    })
}

/// One way to write a place, as JSON.
fn written_place() -> impl Strategy<Value = (String, Vec<String>)> {
    (planted(), 0..24).prop_map(|([(lat, lon), (lat2, lon2)], way)| {
        let json = match way {
            0 => format!(r#"{{"type":"Point","coordinates":[{lon},{lat}]}}"#),
            1 => format!(r#"{{"type":"MultiPoint","coordinates":[[{lon},{lat}],[{lon2},{lat2}]]}}"#),
            2 => format!(
                r#"{{"type":"Feature","bbox":[{lon},{lat},{lon2},{lat2}],"geometry":
                    {{"type":"LineString","coordinates":[[{lon},{lat},7.5],[{lon2},{lat2}]]}}}}"#
            ),
            3 => format!(
                r#"{{"type":"Polygon","coordinates":[[[{lon},{lat}],[{lon2},{lat2}],[0,0],[{lon},{lat}]]]}}"#
            ),
            4 => format!(r#"{{"site_lat":{lat},"site_lon":{lon},"latitude":{lat2}}}"#),
            5 => format!(r#"{{"LATITUDE":"{lat}","LONG":"{lon}"}}"#),
            6 => format!(r#"{{"lats":[{lat},{lat2}],"lons":[{lon},{lon2}]}}"#),
            7 => format!(r#"{{"bbox":[{lon},{lat},{lon2},{lat2}]}}"#),
            8 => format!(r#"{{"stationCoords":[[{lat},{lon}],[{lat2},{lon2}]]}}"#),
            9 => format!(r#""POINT M ({lon} {lat} 3)""#),
            10 => format!(r#""SRID=4326;LINESTRING({lon} {lat},{lon2} {lat2})""#),
            11 => format!(r#"["geo:{lat},{lon}","{lat} {lon}"]"#),
            12 => format!(r#""saw it at {lat}, {lon}; then lat={lat2} lon={lon2}.""#),
            13 => format!(r#"{{"{lat},{lon}":"POLYGON(({lon} {lat}, {lon2}"}}"#),
            14 => format!(r#""{{\"lat\":{lat},\"lon\":{lon},\"at\":[{lat2},{lon2}]}}""#),
            15 => format!(r#"{{"where":[{lon},{lat}],"latLng":"{lat},{lon}"}}"#),
            16 => format!(r#"{{"lat":{{"0":{lat},"1":{lat2}}},"lng":{{"0":{lon},"1":{lon2}}}}}"#),
            17 => format!(
                r#"{{"columns":["id","lat","lon"],"data":[[7,{lat},{lon}],["b",{lat2},12,"{lon2}",null]]}}"#
            ),
            18 => format!(
                r#"{{"lat":{{"value":{lat},"unit":"deg"}},"lon":{{"value":{lon},"unit":"deg"}},
                    "to":{{"latitude":{{"max":{lat2}}},"longitude":[{{"n":{{"min":{lon2}}}}}]}}}}"#
            ),
            19 => format!(r#"{{"x":{lon},"y":{lat},"id":7,"POINT_X":"{lon2}","POINT_Y":"{lat2}"}}"#),
            20 => format!(r#""7,{lat},12,{lon}\n8;{lat2};b;{lon2}""#),
            21 => format!(r#""id,site_lat,n,site_lon\r\n7,{lat},12.5,{lon}\r\n8,{lat2},x,{lon2}""#),
            22 => format!(r#""{lat}\n{lon}\n{lat2}\n{lon2}\n""#),
            _ => format!(
                r#"{{"type":"GeometryCollection","geometries":[
                    {{"type":"Point","coordinates":["{lon}",{lat}]}},
                    {{"type":"Circle","coordinates":[{lon2},{lat2}]}}]}}"#
            ),
        };
        let digits = |number: &String| number[number.find('.').unwrap()..][..5].to_owned();
        (json, [&lat, &lon, &lat2, &lon2].map(digits).to_vec())
    })
}

/// Random JSON with places planted in it, and the digits that must not survive.
fn payload() -> impl Strategy<Value = (String, Vec<String>)> {
    let plain = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        (0..100_u8).prop_map(|n| n.to_string()),
        "\"[a-z ]{0,12}\"",
    ];
    let leaf = prop_oneof![plain.prop_map(|plain| (plain, Vec::new())), written_place()];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let names = prop::sample::subsequence(vec!["a", "note", "flat", "c~/d", "type"], 0..=4);
        let array = prop::collection::vec(inner.clone(), 0..4).prop_map(|items| {
            let (items, digits): (Vec<_>, Vec<_>) = items.into_iter().unzip();
            (format!("[{}]", items.join(",")), digits.concat())
        });
        let object = (names, prop::collection::vec(inner, 4)).prop_map(|(names, items)| {
            let members = names.iter().zip(&items);
            let members: Vec<_> =
                members.map(|(n, (item, _))| format!(r#""{n}":{item}"#)).collect();
            let digits = items.into_iter().take(names.len()).flat_map(|(_, digits)| digits);
            (format!("{{{}}}", members.join(", ")), digits.collect())
        });
        prop_oneof![array, object]
    })
}

proptest! {
    /// Proves P-14: no digit finer than the cells survives, in JSON or in text.
    #[test]
    fn no_exact_place_survives((text, digits) in payload(), resolution in 0_u8..=7) {
        let value = json(&text);
        let masked = mask(&value, resolution);
        prop_assert_eq!(places(&masked.json), []);
        let mut printed = vec![print(&masked.json)];
        printed.push(mask_text(&text, resolution));
        printed.push(mask_text(&format!("it said: {text}\nat once {text}"), resolution));
        for printed in &printed {
            let leaked = digits.iter().find(|digits| printed.contains(digits.as_str()));
            prop_assert!(leaked.is_none(), "{leaked:?} of {text} remains in {printed}");
        }
    }

    /// Proves P-14: masking a masked value changes nothing, and its cells are no finer than
    /// requested.
    #[test]
    fn masking_twice_is_masking_once((text, _) in payload(), resolution in 0_u8..=7) {
        let once = mask(&json(&text), resolution);
        for cell in &once.cells {
            let cell: CellIndex = cell.parse().unwrap();
            prop_assert!(u8::from(cell.resolution()) <= resolution);
        }
        let twice = mask(&once.json, resolution);
        prop_assert_eq!(print(&twice.json), print(&once.json));
    }

    #[test]
    fn no_text_makes_it_panic(text in r#"([-+−]?[0-9]{0,3}\.[0-9]{0,5}|[ ,;NSEW°"'(){}\[\]:\n]|lat=|POINT|geo:|[a-zé]){0,24}"#) {
        mask_text(&text, 7);
        mask(&Json::text(&text), 7);
    }
}
