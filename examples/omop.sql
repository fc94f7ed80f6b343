-- One row for each person, from tables of the OMOP common data model (version 5.4).
-- It runs in PostgreSQL, SQLite and DuckDB. Concepts: https://athena.ohdsi.org
select
    p.person_id,
    2025 - p.year_of_birth as age,
    case when p.gender_concept_id = 8532 then 1 else 0 end as female,
    coalesce(c.diabetes, 0) as diabetes,
    coalesce(c.hypertension, 0) as hypertension,
    coalesce(c.asthma, 0) as asthma,
    m.hba1c,
    m.systolic,
    m.bmi
from person p
left join (
    -- whether a condition was ever recorded
    select
        person_id,
        max(case when condition_concept_id = 201826 then 1 else 0 end) as diabetes,
        max(case when condition_concept_id = 320128 then 1 else 0 end) as hypertension,
        max(case when condition_concept_id = 317009 then 1 else 0 end) as asthma
    from condition_occurrence
    group by person_id
) c on c.person_id = p.person_id
left join (
    -- the mean of all measurements of one kind; none if it was never measured
    select
        person_id,
        avg(case when measurement_concept_id = 3004410 then value_as_number end) as hba1c,
        avg(case when measurement_concept_id = 3004249 then value_as_number end) as systolic,
        avg(case when measurement_concept_id = 3038553 then value_as_number end) as bmi
    from measurement
    group by person_id
) m on m.person_id = p.person_id
