"""The words that the rules know. Data, to be extended freely: a table is a text of entries separated by commas.

In a dict of tables, an entry fills the slot that its table is named after.
"""

from __future__ import annotations

import re

from ...core.lazy_regex import lazy

CATEGORIES: dict[str, str] = {
    # things of which one is chosen
    "language": """Python, TypeScript, JavaScript, Java, Kotlin, Rust, Go, Golang, C++, C#, Ruby, PHP, Swift, Scala,
        Elixir, Erlang, Haskell, OCaml, F#, Clojure, Perl, R, Julia, Dart, Lua, Zig, Nim, Crystal, Objective-C, Fortran,
        COBOL, MATLAB, CoffeeScript, Groovy, Visual Basic, Solidity""",
    "database": """PostgreSQL, Postgres, MySQL, MariaDB, SQLite, MongoDB, Mongo, Oracle, SQL Server, DynamoDB,
        Cassandra, CockroachDB, Neo4j, DuckDB, ClickHouse, Firestore, Supabase, Couchbase, CouchDB, BigQuery, Snowflake,
        Redshift, TimescaleDB, InfluxDB, PlanetScale, Aurora, Firebase, Spanner, Cosmos DB, FaunaDB, SurrealDB""",
    "vector-database": "Chroma, ChromaDB, Pinecone, Weaviate, Qdrant, Milvus, pgvector, FAISS, LanceDB",
    "cache": "Redis, Memcached, Valkey, Varnish",
    "message-queue": "Kafka, RabbitMQ, NATS, SQS, Pulsar, ZeroMQ, ActiveMQ, Celery",
    "search-engine": "Elasticsearch, OpenSearch, Solr, Meilisearch, Typesense, Algolia",
    "frontend-framework": """React, Vue, Vue.js, Svelte, SvelteKit, Angular, Solid, SolidJS, Preact, Ember, Next.js,
        Nuxt, Remix, Astro, Qwik, Lit, htmx""",
    "backend-framework": """Django, Flask, FastAPI, Rails, Ruby on Rails, Express, NestJS, Spring, Spring Boot,
        Laravel, Phoenix, Gin, Actix, Axum, ASP.NET, Symfony, Ktor, Starlette, Litestar, Fastify, Koa, Quarkus,
        Micronaut""",
    "mobile-framework": "Flutter, React Native, SwiftUI, Jetpack Compose, Ionic, Xamarin, Kotlin Multiplatform",
    "ml-framework": "PyTorch, TensorFlow, JAX, Keras, scikit-learn, XGBoost, LightGBM",
    "dataframe-library": "pandas, Polars, Dask, PySpark",
    "css-framework": "Tailwind, Tailwind CSS, Bootstrap, Bulma, Sass, styled-components, Material UI, Chakra UI",
    "state-management": "Redux, Zustand, MobX, Pinia, Vuex, Recoil, Jotai, XState",
    "orm": """SQLAlchemy, Prisma, Hibernate, TypeORM, Drizzle, Sequelize, Entity Framework, ActiveRecord, Peewee,
        SQLModel""",
    "build-tool": "Webpack, Vite, Rollup, esbuild, Parcel, Turbopack, Gradle, Maven, Bazel, CMake, Make, Ninja, Meson",
    "package-manager": "npm, pnpm, yarn, Bun, pip, Poetry, uv, pipenv, conda, pdm, Homebrew, Cargo, Composer",
    "test-framework": """pytest, unittest, Jest, Vitest, Mocha, Jasmine, JUnit, RSpec, Cypress, Playwright, Selenium,
        TestNG""",
    "linter": "ruff, flake8, pylint, ESLint, Biome, Prettier, Black, isort",
    "type-checker": "mypy, pyright, pytype",
    "editor": """VS Code, VSCode, Visual Studio Code, Visual Studio, Vim, Neovim, Emacs, PyCharm, IntelliJ,
        IntelliJ IDEA, WebStorm, Sublime, Sublime Text, Cursor, Zed, Helix, Atom, Nano, Xcode, Android Studio, Eclipse,
        Notepad++, Windsurf""",
    "os": """Windows, Windows 10, Windows 11, macOS, Mac, Linux, Ubuntu, Debian, Fedora, Arch, Arch Linux, NixOS, Mint,
        Linux Mint, Pop!_OS, openSUSE, FreeBSD, ChromeOS, Manjaro, CentOS""",
    "phone-os": "Android, iOS",
    "shell": "bash, zsh, fish shell, PowerShell, nushell",
    "browser": "Firefox, Chrome, Safari, Edge, Brave, Vivaldi, Opera, Arc",
    "cloud": """AWS, Amazon Web Services, Azure, GCP, Google Cloud, Heroku, DigitalOcean, Hetzner, Fly.io, Vercel,
        Netlify, Cloudflare, Linode, OVH, Render, Railway, Oracle Cloud, IBM Cloud, on-premises, on-prem""",
    "container": "Docker, Podman, containerd, LXC",
    "orchestration": "Kubernetes, k8s, Nomad, Docker Swarm, ECS, OpenShift",
    "infrastructure-as-code": "Terraform, Pulumi, CloudFormation, Ansible, Chef, Puppet, OpenTofu",
    "ci": """GitHub Actions, Jenkins, GitLab CI, CircleCI, Travis, Travis CI, TeamCity, Buildkite, Azure Pipelines,
        Drone""",
    "version-control": "git, Mercurial, Subversion, SVN, Perforce, Jujutsu",
    "code-host": "GitHub, GitLab, Bitbucket, Gitea, Codeberg",
    "tracker": "Jira, Linear, Trello, Asana, YouTrack, Redmine, Monday.com, ClickUp, Shortcut, Basecamp",
    "chat": "Slack, Microsoft Teams, Discord, Mattermost, Zulip, Google Chat, Rocket.Chat",
    "wiki": "Confluence, Notion, Obsidian, Coda, Evernote, OneNote, Roam, Logseq",
    "meeting-tool": "Zoom, Google Meet, Webex, Skype, Jitsi",
    "monitoring": "Datadog, Grafana, Prometheus, New Relic, Sentry, Splunk, Honeycomb",
    "design-tool": "Figma, Sketch, Adobe XD, Penpot, Photoshop, GIMP, Affinity",
    "crm": "Salesforce, HubSpot, Pipedrive, Zoho",
    "payment-provider": "Stripe, PayPal, Adyen, Braintree, Mollie, Square, Paddle",
    "api-style": "REST, GraphQL, gRPC, tRPC, SOAP",
    "architecture": """microservices, monolith, a monolith, modular monolith, serverless, event sourcing, monorepo,
        polyrepo""",
    "license": "MIT, Apache 2.0, GPL, AGPL, BSD, MPL, LGPL",
    "workflow": "Scrum, Kanban, trunk-based development, Gitflow, waterfall",
    "model-provider": "OpenAI, Anthropic, Gemini, Mistral, Ollama, Llama, Bedrock, DeepSeek, Cohere",
    "theme": """dark mode, light mode, dark theme, light theme, dark themes, light themes, solarized, dracula,
        high contrast mode, high contrast, dark background, light background, gruvbox, monokai, nord""",
    "keyboard-layout": "QWERTY, AZERTY, QWERTZ, Dvorak, Colemak",
    "indentation": """tabs, spaces, two spaces, four spaces, 2 spaces, 4 spaces, two-space indentation,
        four-space indentation, 2-space indentation, 4-space indentation""",
    "quotes": "single quotes, double quotes",
    "naming-style": "snake_case, camelCase, kebab-case, PascalCase",
    "programming-style": "functional programming, object-oriented programming, OOP",
    "units": """metric, metric units, metric system, the metric system, imperial, imperial units, SI units, Celsius,
        Fahrenheit, kilometers, kilometres, miles, kilograms, kilos, pounds""",
    "clock": "24-hour clock, 12-hour clock, 24-hour time, 12-hour time, 24-hour format, 12-hour format",
    "date-format": "ISO dates, ISO 8601, DD/MM/YYYY, MM/DD/YYYY, YYYY-MM-DD",
    "spelling": "British English, American English, British spelling, American spelling, UK English, US English",
    "seat": """aisle seat, an aisle seat, aisle seats, the aisle, window seat, a window seat, window seats, the window,
        middle seat""",
    "drink": "tea, coffee, black coffee, green tea, espresso, cappuccino, latte, matcha, decaf, herbal tea, water",
    "alcohol": "beer, wine, red wine, white wine, whisky, whiskey, gin, cocktails",
    "pet": "dogs, cats",
    "work-place": "working from home, remote work, working remotely, the office, hybrid work, working in the office",
    "contact": "email, e-mail, phone calls, text messages, texting, WhatsApp, Signal, Telegram",
    "reading-format": "audiobooks, paper books, ebooks, e-books, printed books, hardcovers, paperbacks",
    "season": "summer, winter, spring, autumn",
    "transport": "the train, trains, flying, driving, cycling, public transport, the bus, biking",
}

PROJECT_CHOICES = """
    database, vector-database, cache, message-queue, search-engine, cloud, container, orchestration,
    infrastructure-as-code, ci, architecture, api-style, orm, state-management, payment-provider, monitoring, crm,
    code-host, tracker, license
"""
"""Categories that belong to the project even if one person says "I"."""

ANSWERS: dict[str, str] = {
    # how the assistant should answer
    "answer-length": """short, shorter, brief, concise, terse, succinct, compact, to the point, long, longer, detailed,
        verbose, thorough, in-depth, in depth, one-sentence, crisp, exhaustive, in detail""",
    "answer-format": """bullet points, bullet point, bullets, bulleted lists, bullet lists, markdown, plain text,
        tables, prose, full sentences, numbered lists, numbered steps, step-by-step, step by step, code first,
        code only, JSON, headings""",
    "answer-tone": """formal, informal, casual, friendly, blunt, direct, professional, polite, playful, neutral,
        serious, humorous""",
    "answer-language": """English, German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian, Ukrainian,
        Swedish, Norwegian, Danish, Finnish, Czech, Turkish, Greek, Hebrew, Arabic, Hindi, Japanese, Chinese, Mandarin,
        Korean, Vietnamese, Thai, Romanian, Hungarian, Indonesian, Catalan, Bengali, Farsi, Persian, Urdu, Swahili,
        Cantonese, Latin, Tamil, Welsh, Irish""",
}

CATEGORY_NOUNS: dict[str, str] = {
    "database": "database, db, datastore, data store",
    "language": "programming language, language, coding language",
    "editor": "editor, ide, text editor, code editor",
    "os": "os, operating system, distro",
    "shell": "shell",
    "browser": "browser, web browser",
    "theme": "theme, color theme, colour theme, color scheme",
    "cloud": "cloud, cloud provider, hosting, host, hosting provider",
    "ci": "ci, ci system, ci pipeline, pipeline",
    "frontend-framework": "frontend, front end, frontend framework, ui framework",
    "backend-framework": "backend, back end, backend framework, web framework",
    "test-framework": "testing, tests, test framework, test runner, testing framework",
    "package-manager": "package manager, packages, dependencies",
    "cache": "cache, caching",
    "message-queue": "queue, message queue, message broker, messaging",
    "search-engine": "search, search engine",
    "state-management": "state management, state",
    "orm": "orm",
    "css-framework": "styling, css, css framework, styles",
    "build-tool": "bundler, build tool, bundling, builds",
    "tracker": "issue tracker, tracker, tickets, issue tracking",
    "chat": "chat, team chat, communication",
    "license": "license, licence",
    "architecture": "architecture",
    "api-style": "api style",
    "units": "units",
    "keyboard-layout": "keyboard layout",
}

PLAIN_QUALIFIERS = """
    everything, this project, the project, our project, my project, my projects, all my projects, work, development,
    coding, programming, now, the most part, this, that, most things, all of it, years, me, us, it, good, daily work,
    the team, the app, our app, my app, years now, the new project, the time being, a while, the moment, life
"""
"""What may follow "for" without limiting a choice."""

ATTRIBUTES: dict[str, str] = {
    # "my … is …"
    "name": "name, full name, first name, real name, given name",
    "surname": "last name, surname, family name, maiden name",
    "nickname": "nickname, nick",
    "age": "age",
    "birthday": "birthday, date of birth, birth date, birthdate, bday",
    "pronouns": "pronouns",
    "email": "email, e-mail, email address, mail address",
    "phone": "phone number, phone, mobile number, number, cell",
    "address": "address, home address, postal address",
    "home": "city, home city, place of residence, home",
    "origin": "hometown, home town, home country, birthplace, nationality, country of origin",
    "timezone": "timezone, time zone",
    "native-language": "native language, first language, mother tongue, native tongue",
    "job": "job, role, job title, title, position, profession, occupation, current role, day job",
    "employer": "company, employer, workplace, firm, startup",
    "team": "team",
    "studies": "major, degree, field of study, field",
    "school": "school, university, college",
    "religion": "religion, faith",
    "car": "car, current car",
    "laptop": "laptop, computer, machine, work laptop",
    "budget": "budget",
    "salary": "salary, income",
    "height": "height",
    "weight": "weight",
    "blood-type": "blood type, blood group",
    "shoe-size": "shoe size",
    "shirt-size": "shirt size, t-shirt size",
    "star-sign": "star sign, zodiac sign",
    "goal": "goal, main goal, long-term goal",
    "website": "website, blog, homepage",
    "github": "github, github handle, github username, github account, username, handle",
    "doctor": "doctor, gp, dentist, therapist",
    "working-hours": "working hours, office hours, work hours",
    "diet": "diet",
    "anniversary": "anniversary, wedding anniversary",
}

PROJECT_ATTRIBUTES: dict[str, str] = {
    "deadline": "deadline, release date, launch date, due date",
    "name": "project, app, product, project name, codename, app name, product name",
    "stack": "stack, tech stack, technology stack",
    "budget": "budget",
    "repository": "repo, repository, monorepo, codebase",
    "api": "api",
    "port": "port",
    "main-branch": "main branch, default branch",
    "domain": "domain",
    "customer": "client, customer, main customer, biggest client",
    "standup": "standup, daily, daily standup, stand-up",
    "sprint": "sprint, sprint length",
    "goal": "goal, main goal",
    "company": "company, employer, startup, firm",
}

PROJECT_SUBJECTS = """
    team, project, app, application, product, company, codebase, repo, repository, stack, backend, frontend, api,
    service, website, site, mobile app, web app, startup, department, org, organization, organisation, pipeline, ci,
    server, monorepo, cli, library, platform, infrastructure, system, data pipeline, dev team, engineering team, squad,
    database, build
"""
PROJECT_PARTS = "backend, frontend, api, mobile app, web app, cli, data pipeline, website, library"
"""Parts of a project that have a language of their own."""

ONLY_RELATIONS = """
    wife, husband, partner, spouse, girlfriend, boyfriend, fiancé, fiancée, fiance, fiancee, mother, mom, mum, father,
    dad, boss, manager, mother-in-law, father-in-law, landlord, landlady, roommate, flatmate, supervisor, team lead, ex,
    ex-wife, ex-husband, therapist, assistant, better half, best friend, twin, twin brother, twin sister, co-founder,
    cofounder, stepmother, stepfather
"""
"""Relations of which a person usually has one."""
MANY_RELATIONS = """
    daughter, son, sister, brother, child, kid, baby, toddler, boy, girl, grandmother, grandma, grandfather, grandpa,
    granddaughter, grandson, aunt, uncle, cousin, niece, nephew, friend, colleague, coworker, co-worker, neighbour,
    neighbor, stepson, stepdaughter, brother-in-law, sister-in-law, parents, kids, children, daughters, sons, sisters,
    brothers, in-laws, grandparents, twins, teammate, godson, goddaughter, student, nan
"""
PETS = """
    dog, cat, puppy, kitten, hamster, rabbit, bunny, parrot, horse, pony, guinea pig, fish, goldfish, turtle, tortoise,
    snake, lizard, ferret, bird, budgie, canary, chicken, chickens, dogs, cats, rabbits, horses, pet, pets, retriever,
    labrador, poodle, beagle, terrier, shepherd, dachshund, corgi, husky, bulldog, collie, greyhound, spaniel, pug,
    tabby, hedgehog, gecko, bees, goats, goat
"""

NOUNS_OF_FAMILY = """
    kids, children, boys, girls, twins, siblings, grandchildren, grandkids, stepchildren, stepkids, family, triplets
"""

POSSESSIONS = """
    car, house, home, apartment, flat, condo, cottage, cabin, bike, bicycle, e-bike, motorcycle, motorbike, scooter,
    boat, sailboat, van, camper, truck, laptop, computer, pc, macbook, imac, iphone, ipad, pixel, kindle, tablet,
    printer, 3d printer, playstation, ps5, xbox, switch, nintendo, garden, greenhouse, balcony, piano, guitar, violin,
    drum kit, ukulele, cello, telescope, camera, drone, thinkpad, chromebook, raspberry pi, tesla, farm, allotment,
    business, shop, bakery, restaurant, company, podcast, blog, newsletter, youtube channel, driving licence,
    driver's license, driving license, phd, masters, master's degree, degree, tattoo, pool, sauna, air fryer, gpu, rtx,
    monitor, server, nas, homelab, studio, caravan, vinyl collection, record collection, synthesizer, wheelchair,
    subaru, toyota
"""

ILLNESSES = """
    asthma, diabetes, adhd, add, autism, epilepsy, dyslexia, celiac, coeliac, crohn's, ibs, migraine, migraines, eczema,
    arthritis, gerd, anxiety, depression, insomnia, tinnitus, hypertension, high blood pressure, low blood pressure,
    endometriosis, pcos, psoriasis, cancer, allergy, allergies, disease, syndrome, disorder, intolerance,
    heart condition, condition, hay fever, vertigo, scoliosis, bad knee, bad back, sleep apnea, sleep apnoea,
    fibromyalgia, lupus, anemia, anaemia, parkinson's, alzheimer's, dementia, hypothyroidism, ms, hiv, hepatitis, gout,
    pacemaker, hearing loss, prosthesis, pollen allergy, nut allergy, peanut allergy, panic attacks, ocd, ptsd
"""
HEALTH_TRAITS = """
    diabetic, asthmatic, celiac, coeliac, deaf, blind, color blind, colour blind, color-blind, colour-blind, colorblind,
    colourblind, dyslexic, autistic, epileptic, neurodivergent, hard of hearing, left-handed, left handed, right-handed,
    lactose intolerant, gluten intolerant, gluten-intolerant, lactose-intolerant, near-sighted, nearsighted,
    short-sighted, far-sighted, bipolar, anemic, anaemic, hypertensive, insomniac, recovering alcoholic, sober,
    immunocompromised, a type 1 diabetic, a type 2 diabetic
"""

DIETS = """
    vegetarian, vegan, pescatarian, pescetarian, flexitarian, keto, paleo, omnivore, carnivore, kosher, halal,
    gluten-free, gluten free, low-carb, low carb, low-fodmap, plant-based, dairy-free, dairy free, sugar-free,
    mediterranean, raw vegan, whole30, ketogenic
"""

JOBS = """
    engineer, developer, programmer, designer, teacher, nurse, doctor, physician, surgeon, lawyer, attorney, paralegal,
    architect, manager, analyst, scientist, researcher, student, professor, lecturer, tutor, accountant, auditor,
    consultant, contractor, freelancer, writer, author, editor, journalist, reporter, photographer, illustrator, artist,
    musician, composer, singer, actor, director, producer, chef, cook, baker, barista, waiter, waitress, bartender,
    farmer, gardener, plumber, electrician, carpenter, mechanic, driver, pilot, sailor, soldier, officer, firefighter,
    paramedic, pharmacist, dentist, veterinarian, vet, therapist, psychologist, psychiatrist, counselor, librarian,
    translator, interpreter, secretary, receptionist, assistant, administrator, sysadmin, admin, devops, technician,
    recruiter, salesperson, salesman, marketer, realtor, broker, banker, trader, economist, statistician, mathematician,
    physicist, chemist, biologist, geologist, astronomer, historian, philosopher, linguist, archaeologist, founder,
    cofounder, co-founder, entrepreneur, ceo, cto, cfo, coo, vp, president, owner, product owner, lead, team lead,
    tech lead, intern, apprentice, trainee, postdoc, phd student, phd candidate, graduate student, grad student,
    undergraduate, undergrad, homemaker, stay-at-home dad, stay-at-home mom, stay-at-home mum, housewife, retiree,
    pensioner, coach, trainer, instructor, athlete, dancer, blogger, youtuber, streamer, podcaster, filmmaker, animator,
    tester, dba, sre, pm, scrum master, midwife, caregiver, carer, social worker, judge, politician, priest, pastor,
    monk, detective, tailor, hairdresser, barber, butcher, florist, jeweler, welder, machinist, surveyor, estate agent,
    travel agent, tour guide, flight attendant, logistician, planner, strategist, copywriter, data scientist,
    radiologist, cardiologist, pediatrician, freshman, sophomore, senior
"""

NATIONALITIES = """
    American, British, English, Scottish, Welsh, Irish, German, French, Spanish, Italian, Portuguese, Dutch, Belgian,
    Swiss, Austrian, Polish, Czech, Slovak, Hungarian, Romanian, Bulgarian, Greek, Turkish, Russian, Ukrainian, Swedish,
    Norwegian, Danish, Finnish, Icelandic, Estonian, Latvian, Lithuanian, Croatian, Serbian, Slovenian, Bosnian,
    Albanian, Indian, Pakistani, Bangladeshi, Chinese, Japanese, Korean, Taiwanese, Vietnamese, Thai, Indonesian,
    Malaysian, Filipino, Filipina, Singaporean, Australian, Canadian, Mexican, Brazilian, Argentinian, Argentine,
    Chilean, Colombian, Peruvian, Venezuelan, Cuban, Nigerian, Ghanaian, Kenyan, Ethiopian, Egyptian, Moroccan,
    Algerian, Tunisian, Israeli, Lebanese, Iranian, Iraqi, Saudi, Syrian, Afghan, Nepali, Jamaican, European, African,
    Asian, Kiwi, South African, Sri Lankan, Catalan, Basque
"""
FAITHS = """
    Catholic, Protestant, Christian, Muslim, Jewish, Hindu, Buddhist, Sikh, Atheist, Mormon, Orthodox, Lutheran, Baptist
"""

EVENTS = """
    appointment, interview, exam, test, meeting, flight, call, presentation, deadline, wedding, surgery, operation,
    trip, vacation, holiday, conference, talk, concert, party, birthday party, demo, review, checkup, check-up, final,
    finals, marathon, race, date, dinner, lunch, train, visit, workshop, class, course, recital, hearing, defense,
    defence, graduation, move, release, launch, onsite, offsite, retreat
"""

THINGS_BUILT = """
    app, application, game, startup, product, platform, website, site, web site, online store, shop, saas, marketplace,
    compiler, library, framework, chatbot, bot, newsletter, thesis, dissertation, book, novel, podcast, album,
    extension, plugin, house, robot, synth, api, search engine, dashboard, crm, social network, operating system,
    programming language, simulator, engine
"""


def pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression that ignores case and is compiled when it is first used."""
    return lazy(text, re.IGNORECASE)


def words(*tables: str) -> frozenset[str]:
    """Return the entries of tables, in lower case."""
    return frozenset(entry.strip().lower() for table in tables for entry in table.split(",") if entry.strip())


def pairs(table: str) -> dict[str, str]:
    """Return a table of `short = long` entries as a dict."""
    return {short.strip(): long.strip() for short, _, long in (entry.partition("=") for entry in table.split(","))}


def any_of(*tables: str) -> str:
    """Return a pattern that matches any entry of tables, the longest first."""
    return "|".join(re.escape(word) for word in sorted(words(*tables), key=len, reverse=True))


def inverted(tables: dict[str, str]) -> dict[str, str]:
    """Return the name of its table for each entry, in lower case; the first table counts."""
    slots: dict[str, str] = {}
    for name, table in tables.items():
        for entry in sorted(words(table)):
            slots.setdefault(entry, name)
    return slots


KIN = any_of(ONLY_RELATIONS, MANY_RELATIONS, PETS)
"""A pattern that matches any relative or pet."""
