mod draw;
mod inline;
mod live;
