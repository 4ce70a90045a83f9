-- Tables with the kinds of columns that real tables have. Each has `seq`, its age order; it is no column of a scenario.
SELECT setseed(0.5);
SET max_parallel_workers_per_gather = 0;
CREATE TYPE tier AS ENUM ('bronze', 'silver', 'gold', 'platinum');

-- Standard normal, and a place in 1..n that falls off like Zipf's law.
CREATE FUNCTION normal() RETURNS float8 LANGUAGE sql VOLATILE AS
$$ SELECT sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) $$;
CREATE FUNCTION zipf(n int) RETURNS int LANGUAGE sql VOLATILE AS
$$ SELECT least(n, floor(exp(random() * ln(n + 1)))::int) $$;
CREATE FUNCTION pick(words text[]) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT words[1 + floor(random() * array_length(words, 1))::int] $$;
CREATE FUNCTION pick_skewed(words text[]) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT words[zipf(array_length(words, 1))] $$;
CREATE FUNCTION sentence(n int) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT string_agg(pick(ARRAY['order','late','customer','called','back','"urgent"','refund','item','broken','{box}',
    'asked','for','the','invoice','again','über','naïve','señal','O''Neil','price, tax','see note','warehouse','2nd',
    'delivery','ok','please','confirm','by','phone','—','客户','a\b','return','label','missing','sent']), ' ')
   FROM generate_series(1, n) $$;

CREATE TABLE people AS SELECT
    i AS seq,
    i AS person_id,
    (random() * 9e9)::bigint + 1000000000 AS external_ref,
    pick_skewed(ARRAY['Maria','John','Anna','James','Lucia','Peter','Sofia','Carlos','Emma','David','Laura','Thomas',
        'Julia','Robert','Elena','Michael','Marta','Daniel','Clara','Paul','Irene','George','Alice','Martin','Nora',
        'Hugo','Ines','Oscar','Vera','Leo','Greta','Felix','Ada','Bruno','Dora','Ivan','Olga','Karl','Rita','Sam'])
        AS first_name,
    pick(ARRAY['García','Smith','Müller','Rossi','Novák','Øster','Kowalski','Jones','López','Schneider','Dubois','Silva',
        'Ivanov','Nagy','Popescu','Andersson','Yılmaz','Brown','Fernández','Weber','Moreau','Costa','Petrov','Horváth'])
        || pick(ARRAY['','',' y Vega','-Lang','son','ez',' Ruiz','mann','ova','ić']) AS last_name,
    pick(ARRAY['王','李','张','刘','陈','杨','赵','黄','周','吴']) || pick(ARRAY['伟','芳','娜','敏','静','丽','强','磊','军','洋',
        '勇','艳','杰','娟','涛','明','超','秀','霞','平']) || pick(ARRAY['','一','文','国','海','红']) AS name_native,
    CASE WHEN random() < 0.3 THEN chr(65 + (random() * 25)::int) || '.' END AS middle_initial,
    pick_skewed(ARRAY['Buenos Aires','Córdoba','Rosario','Mendoza','La Plata','San Miguel','Mar del Plata','Salta',
        'Santa Fe','San Juan','Resistencia','Neuquén','Santiago','Corrientes','Avellaneda','Bahía Blanca','Posadas',
        'Quilmes','Paraná','Formosa','San Luis','Río Cuarto','Merlo','Tandil','Ushuaia','Viedma','Zárate','Luján'])
        AS city,
    pick(ARRAY['AR','AR','AR','AR','UY','CL','BR','PY','BO','PE']) AS country,
    pick(ARRAY['Av. San Martín','Belgrano','Rivadavia','Mitre','Sarmiento','9 de Julio','25 de Mayo','Moreno','Urquiza',
        'Alsina','Lavalle','Corrientes']) || ' ' || (1 + random() * 4000)::int AS address,
    date '1940-01-01' + (normal() * 5500 + 14000)::int AS birth_date,
    timestamptz '2015-01-01 00:00+00' + i * interval '3 hours' + random() * interval '3 hours' AS created_at,
    timestamptz '2022-01-01 00:00+00' - (random() ^ 3) * interval '1500 days' AS last_login,
    CASE WHEN random() < 0.1 THEN timestamptz '2018-01-01 00:00+00' + random() * interval '1400 days' END AS deleted_at,
    lower(pick(ARRAY['maria','john','anna','james','lucia','peter','sofia','carlos','emma'])) || '.' || i % 9973 || '@'
        || pick_skewed(ARRAY['gmail.com','hotmail.com','yahoo.com.ar','example.org','correo.net']) AS email,
    '+54 ' || (11 + random() * 360)::int || ' ' || (4000 + random() * 5999)::int || '-'
        || lpad(((random() * 9999)::int)::text, 4, '0') AS phone,
    lpad((1000 + random() ^ 2 * 8400)::int::text, 5, '0') AS zip,
    round(exp(normal() * 0.6 + 10.5)::numeric, 2) AS salary,
    round((normal() * 900 + 1500)::numeric, 2) AS balance,
    (random() ^ 2 * 40)::int AS logins_last_month,
    zipf(5)::smallint AS rating,
    round((random() * 100)::numeric, 1) AS score_percent,
    random() < 0.8 AS active,
    random() < 0.35 AS newsletter,
    random() < 0.04 AS is_staff,
    pick_skewed(ARRAY['single','married','divorced','widowed','partnered']) AS marital_status,
    (ARRAY['bronze','silver','gold','platinum'])[zipf(4)]::tier AS tier,
    gen_random_uuid() AS person_uuid,
    'https://www.example.com/u/' || md5(i::text || 'url') AS profile_url,
    CASE WHEN random() < 0.6 THEN sentence(2 + (random() * 9)::int) END AS notes,
    jsonb_build_object('lang', pick(ARRAY['es','en','pt']), 'visits', (random() * 300)::int) AS preferences,
    'ARG'::text AS source_system,
    NULL::text AS reserved,
    timestamptz '2015-01-01 00:00+00' + i * interval '3 hours' + random() * interval '20 days' AS confirmed_at,
    timestamptz '2015-01-01 00:00+00' + i * interval '3 hours' + random() * interval '900 days' AS modified_at,
    round(exp(normal() * 0.6 + 10.72)::numeric, 2) AS salary_gross,
    random() < 0.73 AS verified,
    CASE WHEN random() < 0.6 THEN chr(65 + (random() * 25)::int) || '.' END AS second_initial,
    pick_skewed(ARRAY['Córdoba','Buenos Aires','Mendoza','Rosario','Salta','La Plata','Mar del Plata','San Miguel',
        'San Juan','Neuquén','Santa Fe','Posadas','Quilmes','Tandil']) AS birth_city,
    CASE WHEN random() < 0.2 THEN pick(ARRAY['spring10','welcome','friends','blackfriday','summer']) END AS promo_code
FROM generate_series(1, 20000) i;

CREATE TABLE events AS SELECT
    i AS seq,
    i::bigint + 5000000 AS event_id,
    timestamp '2024-03-01' + i * interval '40 seconds' + random() * interval '10 minutes' AS occurred_at,
    timestamp '2024-03-01' + i * interval '40 seconds' + interval '2 days' + random() * interval '20 days' AS processed_at,
    zipf(9000) AS user_id,
    (random() * 300 + 1)::int AS device_id,
    pick_skewed(ARRAY['page_view','click','scroll','login','logout','purchase','search','error','share','signup',
        'download','video_play']) AS kind,
    pick_skewed(ARRAY['200','200','304','404','301','500','403','302','503'])::int AS http_status,
    round(exp(normal() * 1.1 + 4)::numeric, 3)::float8 AS latency_ms,
    round(exp(normal() * 1.1 + 4.3)::numeric, 3)::float8 AS queue_ms,
    (exp(normal() * 2 + 9))::bigint AS bytes_sent,
    (exp(normal() * 2 + 8))::bigint AS bytes_received,
    pick_skewed(ARRAY['200','304','200','404','500','301','403'])::int AS upstream_status,
    pick(ARRAY['desktop','mobile','tablet','tv']) AS screen,
    random() < 0.44 AS sampled,
    timestamp '2024-03-01' + i * interval '40 seconds' + random() * interval '5 days' AS stored_at,
    pick_skewed(ARRAY['DE','US','FR','GB','BR','IN','ES','JP','IT','NL','AR']) AS billing_country,
    CASE WHEN random() < 0.07 THEN round(exp(normal() * 0.8 + 3.2)::numeric, 2) END AS amount,
    gen_random_uuid() AS session_id,
    '/' || pick(ARRAY['shop','blog','help','account','search']) || '/' || pick(ARRAY['red-shoes','blue-shirt','returns',
        'pricing','orders','how-to','contact','green-hat']) || CASE WHEN random() < 0.5 THEN '?page=' || zipf(50) ELSE '' END
        AS path,
    pick_skewed(ARRAY['https://google.com/','https://bing.com/','https://news.example/','','https://social.example/x'])
        AS referrer,
    pick_skewed(ARRAY['Chrome/122','Firefox/123','Safari/17','Edge/121','Opera/107','Bot/1.0']) AS agent,
    pick_skewed(ARRAY['desktop','mobile','tablet','tv']) AS device_class,
    pick_skewed(ARRAY['US','DE','FR','BR','IN','JP','AR','GB','ES','IT','MX','CA']) AS geo,
    ((random() * 254)::int || '.' || (random() * 254)::int || '.' || (random() * 254)::int || '.7')::inet AS client_ip,
    random() < 0.5 AS is_new,
    random() < 0.93 AS consent,
    (time '00:00' + ((normal() * 4 + 15) * interval '1 hour')) AS local_time,
    (random() * interval '3 hours') AS dwell,
    date '2024-03-01' + (i / 2160) AS batch_date,
    (i / 500) AS batch_no,
    md5(i::text) AS checksum,
    sha256(i::text::bytea) AS payload_hash,
    round((random() * 180 - 90)::numeric, 5) AS lat,
    round((random() * 360 - 180)::numeric, 5) AS lon,
    1 AS schema_version,
    NULL::int AS experiment_id,
    extract(hour FROM timestamp '2024-03-01' + i * interval '40 seconds')::int AS hour_of_day,
    'v' || (1 + random() ^ 3 * 3)::int || '.' || (random() * 9)::int || '.' || (random() * 20)::int AS app_version
FROM generate_series(1, 60000) i;

CREATE TABLE products AS SELECT
    i AS seq,
    i AS product_id,
    pick(ARRAY['KX','BR','TL','FN','OP']) || '-' || lpad((random() * 99999)::int::text, 5, '0') AS sku,
    pick(ARRAY['Steel','Oak','Cotton','Glass','Leather','Bamboo','Plastic','Copper','Wool','Marble']) || ' '
        || pick(ARRAY['chair','table','lamp','bowl','shirt','desk','clock','mirror','rug','vase','shelf','box']) || ' '
        || pick(ARRAY['classic','pro','mini','XL','2000','deluxe','basic','plus']) AS title,
    round(exp(normal() * 0.9 + 3.5)::numeric, 2) AS price,
    round(exp(normal() * 0.9 + 2.9)::numeric, 2) AS cost,
    round(exp(normal() * 0.9 + 3.72)::numeric, 2) AS list_price,
    (exp(normal() * 1.3 + 3))::int AS stock,
    (exp(normal() * 1.3 + 3.5))::int AS reserved_stock,
    zipf(90) AS brand_id,
    random() < 0.6 AS taxable,
    round((abs(normal()) * 4 + 0.1)::numeric, 3) AS weight_kg,
    pick_skewed(ARRAY['furniture','kitchen','clothing','lighting','decor','garden','office','toys']) AS category,
    pick(ARRAY['red','blue','green','black','white','grey','yellow','brown','orange','pink','purple','beige']) AS color,
    pick_skewed(ARRAY['M','L','S','XL','XS','XXL']) AS size,
    '779' || lpad((random() * 999999999)::bigint::text, 9, '0') || (random() * 9)::int AS barcode,
    date '2010-01-01' + (random() * 5000)::int AS launched,
    CASE WHEN random() < 0.15 THEN date '2022-06-01' + (random() * 500)::int END AS discontinued,
    round((random() ^ 2 * 60)::numeric, 2) AS margin_percent,
    'V' || lpad(zipf(120)::text, 4, '0') AS vendor_code,
    zipf(120) AS vendor_id,
    (random() * 9 + 1)::int AS min_order,
    (1 + (random() ^ 2) * 4)::numeric(2, 1) AS stars,
    zipf(800) - 1 AS review_count,
    (round(exp(normal() * 0.7 + 5)::numeric, 2))::money AS insured_value,
    random() < 0.12 AS on_sale,
    random() < 0.66 AS in_catalog,
    sentence(6 + (random() * 12)::int) AS description,
    'img/' || i || '/' || pick(ARRAY['front','side','back']) || '.jpg' AS image,
    pick(ARRAY['Shenzhen','Guangzhou','Ningbo','Hanoi','Dhaka','Mumbai','Izmir','Porto']) AS origin_city,
    gen_random_uuid()::text AS product_uuid,
    ARRAY[pick(ARRAY['eco','new','sale']), pick(ARRAY['home','gift','pro'])] AS tags,
    '2.0'::text AS feed_version,
    timestamptz '2021-01-01 00:00+00' + i * interval '9 hours' AS updated_at
FROM generate_series(1, 3000) i;

CREATE TABLE census AS SELECT
    i AS seq,
    (ARRAY['Buenos Aires','CABA','Catamarca','Chaco','Chubut','Córdoba','Corrientes','Entre Ríos','Formosa','Jujuy',
        'La Pampa','La Rioja','Mendoza','Misiones','Neuquén','Río Negro','Salta','San Juan','San Luis','Santa Cruz',
        'Santa Fe','Santiago del Estero','Tierra del Fuego','Tucumán'])[1 + i % 24] AS provincia,
    'Depto. ' || pick(ARRAY['Capital','Norte','Sur','Este','Oeste','Lago','Sierra','Valle','Puerto','Monte']) || ' '
        || zipf(60) AS departamento,
    lpad((2 + 4 * (i % 24))::text, 2, '0') || lpad(zipf(130)::text, 3, '0') AS codigo_indec,
    2009 + zipf(14) AS anio,
    1 + (random() * 11)::int AS mes,
    pick(ARRAY['F','M']) AS sexo,
    pick(ARRAY['0-14','15-29','30-44','45-64','65+','65+']) AS grupo_edad,
    (exp(normal() * 1.5 + 8))::int AS poblacion,
    (exp(normal() * 1.2 + 5))::int AS viviendas,
    round((random() ^ 3 * 45)::numeric, 1) AS tasa_desempleo,
    round((normal() * 3 + 75)::numeric, 1) AS esperanza_vida,
    round((-20 - random() * 35)::numeric, 4) AS latitud,
    round((-54 - random() * 18)::numeric, 4) AS longitud,
    pick_skewed(ARRAY['urbano','rural agrupado','rural disperso']) AS area,
    pick_skewed(ARRAY['definitivo','provisorio','estimado']) AS estado_dato,
    'INDEC'::text AS fuente,
    CASE WHEN random() < 0.05 THEN pick(ARRAY['rev.','s/d','ver nota 3','dato, estimado']) END AS observaciones,
    to_char(date '2010-01-01' + (random() * 4500)::int, 'YYYY-MM-DD') AS fecha_censo,
    random() < 0.5 AS con_agua,
    random() < 0.72 AS con_gas,
    random() < 0.66 AS con_cloaca,
    1 + (random() ^ 1.3 * 11)::int AS mes_alta,
    round((random() ^ 2.5 * 45)::numeric, 1) AS tasa_pobreza,
    (random() * 8)::int AS personas_hogar,
    round(exp(normal() * 0.5 + 11)::numeric, 0) AS ingreso
FROM generate_series(1, 25000) i;

CREATE TABLE tickets AS SELECT
    i AS seq,
    'T-' || (100000 + i) AS ticket_no,
    timestamptz '2023-01-01 00:00+00' + i * interval '1 hour' AS opened_at,
    CASE WHEN random() < 0.85 THEN timestamptz '2023-01-01 00:00+00' + i * interval '1 hour'
        + (random() ^ 2) * interval '90 days' + interval '20 days' END AS closed_at,
    pick_skewed(ARRAY['open','closed','pending','waiting','escalated']) AS state,
    pick_skewed(ARRAY['low','normal','high','critical']) AS priority,
    pick(ARRAY['billing','technical','shipping','other']) AS topic,
    zipf(4) AS severity,
    (random() * 40)::int + 1 AS agent_no,
    pick(ARRAY['ana','bob','cid','dan','eva','fay','gus','hal','ivy','jan','kim','lee','max','nia']) || '_'
        || pick(ARRAY['ops','dev','sup']) AS agent_login,
    sentence(3 + (random() * 5)::int) AS subject,
    sentence(15 + (random() * 20)::int) AS body,
    CASE WHEN random() < 0.4 THEN (random() * 4 + 1)::int END AS satisfaction,
    zipf(40) AS replies,
    zipf(55) AS views,
    1 + (random() * 3)::int AS impact,
    random() < 0.26 AS escalated,
    pick_skewed(ARRAY['en','es','fr','pt','de']) AS agent_language,
    (random() ^ 4 * 20000)::int AS minutes_to_answer,
    random() < 0.2 AS reopened,
    random() < 0.45 AS from_mobile,
    pick_skewed(ARRAY['es','en','pt','fr','de']) AS language,
    '#' || to_hex((random() * 16777215)::int) AS tag_color,
    pick(ARRAY['Mon','Tue','Wed','Thu','Fri','Fri','Sat']) AS weekday
FROM generate_series(1, 8000) i;

CREATE TABLE shipments AS SELECT
    i AS seq,
    'SHP' || to_char(date '2022-01-01' + i / 40, 'YYMMDD') || '-' || lpad((i % 40)::text, 3, '0') AS shipment_code,
    (random() * 2400)::int + 1 AS warehouse_no,
    pick_skewed(ARRAY['DHL','UPS','FedEx','GLS','DPD','Correos','PostNL','TNT']) AS carrier,
    chr(65 + (random() * 25)::int) || chr(65 + (random() * 25)::int) || (100000000 + (random() * 899999999)::bigint) || 'ES'
        AS tracking,
    round((exp(normal() * 0.7 + 1))::numeric, 2) AS weight,
    round((exp(normal() * 0.7 + 1.4))::numeric, 2) AS volumetric_weight,
    (random() * 120)::int AS length_cm,
    (random() * 80)::int AS width_cm,
    round((3 + exp(normal() * 0.5 + 1.5))::numeric, 2)::money AS postage,
    date '2022-01-01' + i / 40 AS shipped_on,
    date '2022-01-01' + i / 40 + (2 + random() ^ 2 * 9)::int AS delivered_on,
    pick(ARRAY['Madrid','Lisboa','Paris','Berlin','Roma','Wien','Praha','Bern','Oslo','Riga','Kyiv','Athina']) AS destination,
    pick_skewed(ARRAY['Madrid','Barcelona','Sevilla','Zaragoza','Bilbao']) AS origin,
    random() < 0.07 AS damaged,
    random() < 0.31 AS insured,
    random() < 0.58 AS signed_for,
    CASE WHEN random() < 0.25 THEN round((random() * 500)::numeric, 0) END AS declared_value,
    (1 + random() ^ 3 * 11)::int AS parcels,
    pick(ARRAY['std','exp','eco','std','std']) AS service,
    sentence(2 + (random() * 3)::int) AS instructions,
    (random() * interval '40 hours') AS transit,
    round((random() * 30 - 8)::numeric, 1) AS temperature
FROM generate_series(1, 12000) i;

CREATE TABLE hotels AS SELECT
    i AS seq,
    pick(ARRAY['Hotel','Hostal','Pension','Gran Hotel','Apart']) || ' ' || pick(ARRAY['Sol','Mar','Plaza','Central','Roma',
        'Astoria','Miramar','Colón','Europa','Jardín']) || ' ' || (i % 700) AS hotel_name,
    zipf(5) AS category,
    (10 + exp(normal() * 0.8 + 3))::int AS rooms,
    (20 + exp(normal() * 0.8 + 3.7))::int AS beds,
    round((20 + exp(normal() * 0.5 + 4))::numeric, 0) AS low_season_price,
    round((30 + exp(normal() * 0.5 + 4.3))::numeric, 0) AS high_season_price,
    round((random() ^ 0.5 * 10)::numeric, 1) AS guest_score,
    round((random() ^ 0.7 * 10)::numeric, 1) AS location_score,
    (exp(normal() * 1.4 + 4))::int AS reviews,
    1900 + (random() ^ 0.4 * 123)::int AS built,
    CASE WHEN random() < 0.45 THEN 1990 + (random() * 33)::int END AS renovated,
    random() < 0.85 AS wifi,
    random() < 0.62 AS parking,
    random() < 0.33 AS pool,
    '+34 9' || (10 + (random() * 89)::int) || ' ' || (100 + (random() * 899)::int) || ' ' || (100 + (random() * 899)::int)
        AS telephone,
    'info@' || pick(ARRAY['sol','mar','plaza','roma','europa']) || (i % 911) || '.es' AS contact_email,
    round((36 + random() * 7)::numeric, 5) AS latitude,
    round((-9 + random() * 12)::numeric, 5) AS longitude,
    lpad((1 + (random() * 51)::int)::text, 2, '0') || lpad((random() * 999)::int::text, 3, '0') AS postcode,
    pick_skewed(ARRAY['Madrid','Barcelona','Valencia','Sevilla','Málaga','Alicante','Cádiz','Murcia','Granada','Girona'])
        AS province,
    time '12:00' + (random() * 4)::int * interval '30 minutes' AS check_in,
    time '10:00' + (random() * 4)::int * interval '30 minutes' AS check_out,
    timestamptz '2020-01-01 00:00+00' + (random() ^ 0.5) * interval '1200 days' AS last_inspection,
    pick(ARRAY['A','B','C','D','E']) AS energy_class
FROM generate_series(1, 2500) i;
